"""What operators do to all workers, as verbs: generators like those of `verbs`, which they are given."""

from __future__ import annotations

from functools import partial
from heapq import nlargest
from typing import Any, Final

from delayq.core.control import Control
from delayq.core.durability import parse_durability
from delayq.core.durations import duration_ms
from delayq.core.errors import InvalidInput
from delayq.core.leases import check_lease
from delayq.core.progress import Progress
from delayq.core.queue_events import QueueBusy, QueuePaused, QueueResumed
from delayq.core.views import JobInfo, QueueStats, WorkerInfo
from delayq.redis.calls import deliver, inspect, operate
from delayq.redis.calls.call import Command, number, text
from delayq.redis.calls.operate import Switch
from delayq.redis.keys import Globals
from delayq.redis.verbs import Flow, Verbs

ALL: Final = ""
"""No queue in particular, in events."""


def pause(verbs: Verbs, queue: str | None, length: str | None) -> Flow[int]:
    """Pause a queue, for a time or until resumed; answers until when."""
    scope = verbs.scope(queue)
    yield from verbs.register(scope.queue)
    until_ms: int = yield inspect.pause(scope, operate.UNTIL_ENDED if length is None else max(1, duration_ms(length)))
    verbs.tell(QueuePaused(scope.queue, until_ms))
    return until_ms


def resume(verbs: Verbs, queue: str | None) -> Flow[None]:
    """Undo a pause."""
    scope = verbs.scope(queue)
    yield inspect.resume(scope)
    verbs.tell(QueueResumed(scope.queue))


def busy(verbs: Verbs, above: int, queue: str | None) -> Flow[list[QueueStats]]:
    """The queues that have that much to do, or more."""
    if above < 1:
        raise InvalidInput(f"above is {above}; it must be at least 1.", hint="A queue without a job is not busy.")
    found = [one for one in (yield from verbs.stats(queue)) if one.load >= above]
    for one in found:
        verbs.tell(QueueBusy(one.queue, one.load, above))
    return found


def control(verbs: Verbs) -> Flow[Control]:
    """What holds for all workers."""
    found: Control = yield operate.control(verbs.scope(None))
    return found


def turn_on(verbs: Verbs, what: Switch, length: str | None, reason: str = "") -> Flow[Control]:
    """For a time, or until it is ended."""
    for_ms = operate.UNTIL_ENDED if length is None else max(1, duration_ms(length))
    found: Control = yield operate.switch(verbs.scope(None), what, for_ms, reason)
    if what is Switch.PAUSE:
        verbs.tell(QueuePaused(ALL, found.paused_until_ms or 0))
    return found


def turn_off(verbs: Verbs, what: Switch) -> Flow[Control]:
    """Now."""
    found: Control = yield operate.switch(verbs.scope(None), what, operate.END)
    if what is Switch.PAUSE:
        verbs.tell(QueueResumed(ALL))
    return found


def restart_workers(verbs: Verbs) -> Flow[Control]:
    """Call on all workers that were started until now to leave after their job."""
    found: Control = yield operate.restart(verbs.scope(None))
    return found


def workers(verbs: Verbs) -> Flow[list[WorkerInfo]]:
    """All workers that are alive, sorted by name."""
    keys = Globals(verbs.options.prefix)
    names: list[str] = yield Command(
        ("ZRANGE", keys.workers, 0, -1), lambda reply: sorted(map(text, reply)), reads=True
    )
    found: list[WorkerInfo] = []
    for name in names:  # one by one: in a cluster they lie in different slots
        worker: WorkerInfo | None = yield Command(("GET", keys.worker(name)), partial(inspect.worker, name), True)
        found += [worker] if worker else []
    return found


def progress(verbs: Verbs, job_id: str, queue: str | None) -> Flow[Progress | None]:
    """What a running job told last."""
    info = yield from verbs.get(job_id, queue)
    return info.progress if info else None


def recent_failures(verbs: Verbs, queue: str | None, limit: int) -> Flow[list[JobInfo]]:
    """The jobs that failed last, the newest first."""
    queues = (yield from verbs.queues()) if queue is None else [queue]
    newest: list[tuple[int, str, str]] = []
    for name in queues:
        rows: list[tuple[int, str]] = yield Command(
            ("ZREVRANGE", verbs.scope(name).keys.of("failed"), 0, limit - 1, "WITHSCORES"), scored, reads=True
        )
        newest += [(failed_ms, name, job_id) for failed_ms, job_id in rows]
    found: list[JobInfo] = []
    for _, name, job_id in nlargest(limit, newest):
        info = yield from verbs.get(job_id, name)
        found += [info] if info is not None and info.failed_ms is not None else []  # it may have been retried meanwhile
    return found


def configure(verbs: Verbs, queue: str | None, lease: str | None, durability: str | None = None) -> Flow[int]:
    """Set what a queue keeps for itself; answers the lease in force, in ms."""
    lease_ms = None if lease is None else check_lease(lease)
    safe = "" if durability is None else str(parse_durability(durability))
    scope = verbs.scope(queue)
    yield from verbs.register(scope.queue)
    in_force: int = yield inspect.configure(scope, lease_ms, safe)
    verbs.durable.forget(scope.queue)
    return in_force


def durability(verbs: Verbs, queue: str | None) -> Flow[str]:
    """What is waited for on a queue, for calls that do not say."""
    scope = verbs.scope(queue)
    verbs.durable.forget(scope.queue)
    return str((yield from verbs.durable.wanted(scope, None)))


def prune_failed(verbs: Verbs, queue: str | None, older: str) -> Flow[int]:
    """Forget jobs that failed that long ago; answers how many."""
    keep_ms, dropped = duration_ms(older), 0
    while True:
        pruned: deliver.Pruned = yield deliver.prune(verbs.scope(queue), keep_ms)
        dropped += pruned.failed
        if pruned.failed < deliver.PAGE:
            return dropped


def clear(verbs: Verbs, queue: str | None) -> Flow[int]:
    """Drop everything that waits; answers how many jobs."""
    dropped = 0
    while some := (yield inspect.clear(verbs.scope(queue))):
        dropped += some
    return dropped


def scored(reply: list[Any]) -> list[tuple[int, str]]:
    """Scores and members: RESP2 answers them flat, RESP3 in pairs."""
    flat = [item for row in reply for item in (row if isinstance(row, list | tuple) else (row,))]
    return [(number(_bytes(score)) or 0, text(member)) for member, score in zip(flat[::2], flat[1::2], strict=True)]


def _bytes(score: bytes | float) -> bytes:
    return score if isinstance(score, bytes) else str(score).encode()
