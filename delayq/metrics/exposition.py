"""What `delayq serve` shows at /metrics: the state of Redis, the same whichever process is asked.

Nothing here has the label `job`, and nothing of it is counted by `process_exposition` under the same name: sums over
all targets stay true.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from prometheus_client.core import Metric

from delayq.core.observed import Observed, QueueObserved
from delayq.core.states import State
from delayq.metrics.families import counter, gauge, histogram, written

_QUEUE: Final = ("queue",)
_COUNTERS: Final = {
    "scheduled": ("scheduled_total", "Jobs taken."),
    "promoted": ("promoted_total", "Jobs moved to the stream when due."),
    "done": ("acked_total", "Jobs that ended well, were discarded, or stopped as asked."),
    "released": ("released_total", "Attempts that ended with another try, or a snooze."),
    "failed": ("failed_total", "Jobs given up."),
    "cancelled": ("cancelled_total", "Jobs cancelled before they ran."),
    "reclaimed": ("reclaimed_total", "Deliveries taken back because their worker vanished."),
    "handed_back": ("handed_back_total", "Deliveries given back before they were started."),
}


def exposition(seen: Observed, version: str, accept: str = "") -> tuple[bytes, str]:
    """The page and its content type; `version` is delayq's."""
    return written(families(seen, version), accept)


def families(seen: Observed, version: str) -> Iterator[Metric]:
    """All metrics of what was seen."""
    queues = seen.queues
    yield gauge("delayq_build_info", "The version of delayq; always 1.", ["version"], [((version,), 1)])
    yield gauge("delayq_redis_up", "Whether Redis answered.", (), [((), float(seen.reachable))])
    yield gauge(
        "delayq_queue_readable",
        "Whether the keys of the queue could be read; 0 = somebody damaged one, or its node is away.",
        _QUEUE,
        [*(((one.stats.queue,), 1.0) for one in queues), *(((name,), 0.0) for name in seen.unseen)],
    )
    yield from _spreads(queues)
    yield from _gauges(queues)
    workers = {one.stats.queue: 0 for one in queues} | dict(seen.workers)
    yield gauge(
        "delayq_workers",
        "Processes of workers that serve the queue.",
        _QUEUE,
        [((name,), number) for name, number in sorted(workers.items())],
    )
    for name, (field, said) in _COUNTERS.items():
        samples = [((one.stats.queue,), one.stats.counters.get(field, 0)) for one in queues]
        yield counter(f"delayq_jobs_{name}_total", said, _QUEUE, samples)


def _spreads(queues: Sequence[QueueObserved]) -> Iterator[Metric]:
    yield histogram(
        "delayq_queue_lateness_seconds",
        "From due time to the start of the handler, all workers together.",
        _QUEUE,
        [((one.stats.queue,), one.late) for one in queues],
    )
    yield histogram(
        "delayq_queue_duration_seconds",
        "How long attempts ran, all workers together.",
        _QUEUE,
        [((one.stats.queue,), one.took) for one in queues],
    )


def _gauges(queues: Sequence[QueueObserved]) -> Iterator[Metric]:
    rows = [(one.stats.queue, one) for one in queues]
    states = (State.SCHEDULED, State.READY, State.RESERVED, State.FAILED, State.COMPLETED)
    yield gauge(
        "delayq_jobs",
        "Jobs in each state.",
        ("queue", "state"),
        [((name, str(state)), getattr(one.stats, state)) for name, one in rows for state in states],
    )
    yield gauge(
        "delayq_overdue_jobs",
        "Jobs whose time has come and that no worker has yet.",
        _QUEUE,
        [((name,), one.overdue) for name, one in rows],
    )
    yield gauge(
        "delayq_queue_latency_seconds",
        "How long the oldest of those has been due.",
        _QUEUE,
        [((name,), one.stats.overdue_oldest_ms / 1000) for name, one in rows],
    )
    yield gauge(
        "delayq_queue_paused",
        "Whether the queue is paused.",
        _QUEUE,
        [((name,), one.stats.paused) for name, one in rows],
    )
    yield gauge(
        "delayq_queue_memory_bytes",
        "Memory that the keys of the queue take, about.",
        _QUEUE,
        [((name,), one.bytes) for name, one in rows],
    )
    yield gauge(
        "delayq_mover_last_success_timestamp_seconds",
        "When a mover last looked at the queue, by the clock of Redis; 0 = never.",
        _QUEUE,
        [((name,), one.stats.mover_tick_ms / 1000) for name, one in rows],
    )
    yield gauge(
        "delayq_queue_time_seconds",
        "The clock of Redis when the queue was looked at.",
        _QUEUE,
        [((name,), one.stats.now_ms / 1000) for name, one in rows],
    )
