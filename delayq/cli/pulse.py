"""What `top` knows at one moment, and how fast things went since the moment before. Pure, but for the look itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from delayq.core import shapes
from delayq.core.control import Control
from delayq.core.progress import Progress
from delayq.core.sealing import hide
from delayq.core.views import JobInfo, QueueStats, WorkerInfo
from delayq.redis.client import Client

FAILURES: Final = 5
RUNNING: Final = 20
"""Running jobs that are looked up for their name and progress."""
COUNTERS: Final = {
    "scheduled": "scheduled_total",
    "done": "acked_total",
    "released": "released_total",
    "failed": "failed_total",
}
Rates = dict[str, dict[str, float]]
"""For each queue: jobs a second that were scheduled, done, released and failed."""
_SECOND_MS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Running:
    """A job that runs, as its worker said. `name` is '' when the job has ended since."""

    id: str
    queue: str
    worker: str
    for_ms: int
    name: str = ""
    progress: Progress | None = None


@dataclass(frozen=True, slots=True)
class Pulse:
    """Everything at one moment, `at_ms` by the server's clock."""

    at_ms: int
    queues: tuple[QueueStats, ...]
    workers: tuple[WorkerInfo, ...]
    running: tuple[Running, ...]
    failures: tuple[JobInfo, ...]
    control: Control

    @property
    def failed(self) -> tuple[tuple[str, int, int], ...]:
        """What changes when there are other failures to show."""
        return tuple((one.queue, one.failed, one.counters.get("failed_total", 0)) for one in self.queues)


def look(client: Client, queue: str | None, before: Pulse | None) -> Pulse:
    """The state of one queue, or all. Failures are read again only when their number changed since `before`."""
    control, queues = client.control(), tuple(client.stats(queue))
    workers = tuple(one for one in client.workers() if queue is None or queue in one.queues)
    jobs = [job for one in workers for job in runs(one, control.now_ms) if queue in (None, job.queue)]
    found = Pulse(control.now_ms, queues, workers, tuple(_named(client, job) for job in jobs[:RUNNING]), (), control)
    failures = before.failures if before and before.failed == found.failed else _failures(client, queue)
    return Pulse(found.at_ms, queues, workers, found.running, failures, control)


def _failures(client: Client, queue: str | None) -> tuple[JobInfo, ...]:
    return tuple(client.recent_failures(queue, limit=FAILURES))


def _named(client: Client, job: Running) -> Running:
    info = client.get(job.id, queue=job.queue)
    if info is None:
        return job
    return Running(job.id, job.queue, job.worker, job.for_ms, info.name, hide(info).progress)


def runs(one: WorkerInfo, now_ms: int) -> Iterator[Running]:
    """Yield the jobs that a worker reports as running, with how long each has run at `now_ms`, the server's time.

    The worker's own `for_ms` is as old as its report, so `since_ms` decides. A row without an id or a queue is left
    out.
    """
    listed = one.about.get("running")
    for said in listed if isinstance(listed, list) else ():
        job = said if isinstance(said, dict) else {}
        job_id, queue, since_ms = job.get("id"), job.get("queue"), job.get("since_ms")
        if isinstance(job_id, str) and job_id and isinstance(queue, str):
            for_ms = max(0, now_ms - since_ms) if isinstance(since_ms, int) else 0
            yield Running(job_id, queue, one.name, for_ms)


def rates(before: Pulse, after: Pulse) -> Rates:
    """For each queue how many jobs a second were scheduled, done, released and failed between two looks.

    Zero for a queue that was not there before, and where a counter went back because somebody deleted it.
    """
    known = {one.queue: one for one in before.queues}
    found = Rates()
    for one in after.queues:
        old = known.get(one.queue, one)
        seconds = max(1, one.now_ms - old.now_ms) / _SECOND_MS
        grown = {word: one.counters.get(name, 0) - old.counters.get(name, 0) for word, name in COUNTERS.items()}
        found[one.queue] = {word: round(max(0, number) / seconds, 1) for word, number in grown.items()}
    return found


def shape(seen: Pulse, rates: Rates) -> shapes.Shape:
    """What `top` shows: `per_s` of a queue are jobs a second, measured over the last interval."""
    return {
        **shapes.at("at", seen.at_ms),
        "queues": [{**shapes.queue(one), "per_s": rates.get(one.queue, {})} for one in seen.queues],
        "workers": [shapes.worker(one) for one in seen.workers],
        "running": [
            {
                "id": one.id,
                "name": one.name or None,
                "queue": one.queue,
                "worker": one.worker,
                "for_ms": one.for_ms,
                "progress": shapes.told(one.progress) if one.progress else None,
            }
            for one in seen.running
        ],
        "failures": [
            {
                "id": one.id,
                "name": one.name or None,
                "queue": one.queue,
                **shapes.at("failed", one.failed_ms),
                "type": one.failure.type if one.failure else None,
                "message": one.failure.message if one.failure else None,
            }
            for one in seen.failures
        ],
        "control": shapes.control(seen.control),
    }
