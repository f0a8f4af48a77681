"""What `delayq serve` shows at /metrics: the state of Redis, the same whichever process is asked.

Nothing here has the label `job`, and nothing of it is counted by `process_exposition` under the same name: sums over
all targets stay true.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from prometheus_client.core import Metric

from delayq.core.observed import Observed, QueueObserved
from delayq.core.states import State
from delayq.core.views import QueueStats
from delayq.metrics.families import counter, gauge, histogram, written

_QUEUE: Final = ("queue",)
OTHER: Final = "(other)"
"""The label of the queues that have no series of their own; no queue can be called so."""
_STATES: Final = (State.SCHEDULED, State.READY, State.RESERVED, State.FAILED, State.COMPLETED)
_OF_THE_REST: Final[Mapping[str, Callable[[Sequence[QueueStats]], float]]] = {
    "queue_latency_seconds": lambda rest: max(one.overdue_oldest_ms for one in rest) / 1000,
    "queue_paused": lambda rest: sum(one.paused for one in rest),
}
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

_GAUGES: Final[Mapping[str, tuple[Callable[[QueueObserved], float], str]]] = {
    "overdue_jobs": (lambda one: one.overdue, "Jobs whose time has come and that no worker has yet."),
    "queue_latency_seconds": (
        lambda one: one.stats.overdue_oldest_ms / 1000,
        "How long the oldest of those has been due.",
    ),
    "reserved_silent_jobs": (
        lambda one: one.silent,
        "Jobs held by workers that have been silent for longer than a lease; counted up to 500 in each shard.",
    ),
    "queue_paused": (lambda one: one.stats.paused, "Whether the queue is paused."),
    "mover_last_success_timestamp_seconds": (
        lambda one: one.stats.mover_tick_ms / 1000,
        "When a mover last looked at the queue, by the clock of Redis; 0 = never.",
    ),
    "queue_time_seconds": (
        lambda one: one.stats.now_ms / 1000,
        "The clock of Redis when the queue was looked at.",
    ),
}


def exposition(seen: Observed, version: str, accept: str = "") -> tuple[bytes, str]:
    """The page and its content type; `version` is delayq's."""
    return written(families(seen, version), accept)


def families(seen: Observed, version: str) -> Iterator[Metric]:
    """All metrics of what was seen."""
    queues = seen.queues
    yield gauge("delayq_build_info", "The version of delayq; always 1.", ["version"], [((version,), 1)])
    yield gauge("delayq_redis_up", "Whether Redis answered.", (), [((), float(seen.reachable))])
    yield from _servers(seen)
    yield gauge(
        "delayq_queue_readable",
        "Whether the keys of the queue could be read; 0 = somebody damaged one, or its node is away.",
        _QUEUE,
        [*(((one.stats.queue,), 1.0) for one in queues), *(((name,), 0.0) for name in seen.unseen)],
    )
    yield gauge(
        "delayq_queues_summed",
        f'Queues that have no series of their own: the others, summed under queue="{OTHER}".',
        (),
        [((), len(seen.rest))],
    )
    yield from _spreads(queues)
    yield from _gauges(queues, seen.rest)
    workers = {one.stats.queue: 0 for one in queues} | dict(seen.workers)
    yield gauge(
        "delayq_workers",
        "Processes of workers that serve the queue.",
        _QUEUE,
        [((name,), number) for name, number in sorted(workers.items())],
    )
    for name, (field, said) in _COUNTERS.items():
        samples = [((one.stats.queue,), one.stats.counters.get(field, 0)) for one in queues]
        samples += [((OTHER,), seen.rest_counters.get(field, 0))] if seen.rest else []
        yield counter(f"delayq_jobs_{name}_total", said, _QUEUE, samples)


def _servers(seen: Observed) -> Iterator[Metric]:
    """Of a cluster: whether all primaries take writes, and the memory of the fullest."""
    told = [one.writable for one in seen.servers if one.writable is not None]
    yield gauge(
        "delayq_redis_writable",
        "Whether Redis takes writes; of a cluster, all its primaries. Missing where the user may not try.",
        (),
        [((), float(all(told)))] if told else [],
    )
    fullest = max(seen.servers, key=lambda one: (one.fullness, one.memory_bytes or 0), default=None)
    used, limit = (None, None) if fullest is None else (fullest.memory_bytes, fullest.memory_limit_bytes)
    yield gauge(
        "delayq_redis_memory_used_bytes",
        "Memory that Redis uses; of a cluster, its fullest primary.",
        (),
        [] if used is None else [((), used)],
    )
    yield gauge(
        "delayq_redis_memory_limit_bytes",
        "Its maxmemory; missing where there is no limit.",
        (),
        [((), limit)] if limit else [],
    )
    yield gauge(
        "delayq_clock_skew_seconds",
        "The clock of the machine of `delayq serve` minus that of Redis.",
        (),
        [] if seen.skew_ms is None else [((), seen.skew_ms / 1000)],
    )


def _spreads(queues: Sequence[QueueObserved]) -> Iterator[Metric]:
    yield histogram(
        "delayq_queue_lateness_seconds",
        "From due time to the start of the handler, all workers together.",
        _QUEUE,
        [((one.stats.queue,), one.late) for one in queues],
    )
    yield histogram(
        "delayq_queue_promotion_seconds",
        "From due time to the stream: what movers answer for.",
        _QUEUE,
        [((one.stats.queue,), one.promoted) for one in queues],
    )
    yield histogram(
        "delayq_queue_duration_seconds",
        "How long attempts ran, all workers together.",
        _QUEUE,
        [((one.stats.queue,), one.took) for one in queues],
    )


def _gauges(queues: Sequence[QueueObserved], rest: Sequence[QueueStats]) -> Iterator[Metric]:
    """Of the rest, the sums that can be had from counts, and how late the latest of them is."""
    summed = [((OTHER, str(state)), sum(getattr(one, state) for one in rest)) for state in _STATES if rest]
    yield gauge(
        "delayq_jobs",
        "Jobs in each state.",
        ("queue", "state"),
        [((one.stats.queue, str(state)), getattr(one.stats, state)) for one in queues for state in _STATES] + summed,
    )
    yield gauge(
        "delayq_queue_memory_bytes",
        "Memory that the keys of the queue take, about; missing where the server does not say.",
        _QUEUE,
        [((one.stats.queue,), one.bytes) for one in queues if one.bytes is not None],
    )
    for name, (read, said) in _GAUGES.items():
        samples = [((one.stats.queue,), read(one)) for one in queues]
        if rest and name in _OF_THE_REST:
            samples.append(((OTHER,), _OF_THE_REST[name](rest)))
        yield gauge(f"delayq_{name}", said, _QUEUE, samples)
