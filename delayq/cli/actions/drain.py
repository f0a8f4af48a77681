"""drain: workers take no new jobs, and the command can wait until none runs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from delayq.cli.session import Session
from delayq.cli.words import count
from delayq.core.errors import QueueNotFound
from delayq.core.states import State
from delayq.core.views import JobInfo
from delayq.core.when import duration_ms
from delayq.redis.client import Client

HEARD_S: Final = 1.0
"""A busy worker looks for pauses twice a second; until this has passed it may still start a job."""
LOOK_S: Final = 0.25
TELL_S: Final = 5.0
MOST_SHOWN: Final = 100


@dataclass(frozen=True, slots=True)
class Wait:
    """How to wait. `timeout` None means without limit."""

    timeout: str | None = None


def drain(session: Session, queues: Sequence[str], wait: Wait | None, reason: str, *, as_json: bool) -> int:
    """Pause the queues, or with none named everything; the exit code is 1 when jobs still run at the timeout.

    Without `wait` it only pauses, and says how many jobs run. Raises `QueueNotFound` before anything is paused.
    """
    with session.client() as client:
        if unknown := sorted(set(queues) - set(client.queues())):
            raise QueueNotFound(
                f"No queue is called {', '.join(unknown)}; nothing was paused.",
                hint="`delayq stats` lists the queues there are.",
            )
        session.record(client, "drain", ",".join(queues), reason=reason)
        _pause(client, queues, reason)
        undo = [f"delayq resume {queue}" for queue in queues] or ["delayq resume --all"]
        what = ", ".join(queues) or "any queue"
        session.out.note(f"Workers take no new jobs from {what}. To undo it: {' && '.join(undo)}")
        reserved = _reserved(client, queues) if wait is None else _wait(session, client, queues, wait)
        running = [(job.queue, job.id) for queue in reserved for job in _jobs(client, queue)]
    drained = not reserved
    if as_json:
        shown = [{"queue": queue, "id": job_id} for queue, job_id in running]
        session.out.json({"drained": drained, "reserved": reserved, "running": shown, "undo": undo})
    else:
        session.out.line("drained" if drained else "draining")
        for queue, job_id in running:
            session.out.line(f"{queue}/{job_id}")
        if not drained:
            session.out.note(_sentence(reserved, wait))
    return 1 if wait is not None and reserved else 0


def _pause(client: Client, queues: Sequence[str], reason: str) -> None:
    for queue in queues:
        client.pause(queue)
    if not queues:
        client.pause_all(reason=reason)


def _wait(session: Session, client: Client, queues: Sequence[str], wait: Wait) -> Mapping[str, int]:
    """Look until no job is reserved; what is reserved in each queue at the timeout, nothing when there was none."""
    began = told = time.monotonic()
    limit_s = float("inf") if wait.timeout is None else duration_ms(wait.timeout) / 1000
    while True:
        looked = time.monotonic()
        reserved = _reserved(client, queues)
        if not reserved and looked - began >= HEARD_S:
            return reserved
        left_s = began + limit_s - time.monotonic()
        if left_s <= 0 and reserved:
            return reserved
        if reserved and looked - told >= TELL_S:
            told = looked
            session.out.note(f"{_running(reserved)}, after {looked - began:.0f} s.")
        time.sleep(min(LOOK_S, left_s) if left_s > 0 else LOOK_S)


def _reserved(client: Client, queues: Sequence[str]) -> Mapping[str, int]:
    """How many jobs each queue has reserved, without the queues that have none."""
    found = [one for queue in queues for one in client.stats(queue)] if queues else client.stats()
    return {one.queue: one.reserved for one in found if one.reserved}


def _jobs(client: Client, queue: str) -> Sequence[JobInfo]:
    return list(islice(client.iter_jobs(State.RESERVED, queue=queue), MOST_SHOWN))


def _running(reserved: Mapping[str, int]) -> str:
    jobs = ", ".join(f"{queue} {number:,}" for queue, number in reserved.items())
    total = sum(reserved.values())
    return f"{count(total, 'job')} still {'runs' if total == 1 else 'run'} ({jobs})"


def _sentence(reserved: Mapping[str, int], wait: Wait | None) -> str:
    if wait is None:
        return f"{_running(reserved)}; `delayq drain --wait` waits for them."
    return f"{_running(reserved)} after {wait.timeout}. The pause holds; `delayq drain --wait` goes on waiting."
