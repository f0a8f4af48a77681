"""JSON shapes of queues."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Self

from delayq.core.json_shapes.answers import JobIdShape
from delayq.core.json_shapes.members import end_text, members_of
from delayq.core.times import format_duration, format_instant
from delayq.core.views import DayCounts, QueueStats, QueueView, Upcoming


@dataclass(frozen=True, slots=True)
class QueueStatsShape:
    """One queue of `delayq stats`: the number of jobs in each state, and the wait of the oldest due job."""

    queue: str
    scheduled: int
    ready: int
    reserved: int
    failed: int
    completed: int
    paused: bool
    overdue_oldest_ms: int

    @classmethod
    def of(cls, stats: QueueStats) -> "QueueStatsShape":
        """Return the shape of the counts of a queue."""
        return QueueStatsShape(
            queue=stats.queue,
            scheduled=stats.scheduled,
            ready=stats.ready,
            reserved=stats.reserved,
            failed=stats.failed,
            completed=stats.completed,
            paused=stats.paused,
            overdue_oldest_ms=stats.overdue_oldest_ms,
        )


@dataclass(frozen=True, slots=True)
class UnreadableQueueShape:
    """One queue of `delayq stats` that could not be read. `error` has the reason."""

    queue: str
    scheduled: None
    ready: None
    reserved: None
    failed: None
    completed: None
    paused: None
    overdue_oldest_ms: None
    error: str

    @classmethod
    def of(cls, stats: QueueStats) -> "UnreadableQueueShape":
        """Return the shape of a queue that could not be read."""
        return UnreadableQueueShape(stats.queue, None, None, None, None, None, None, None, stats.error)


@dataclass(frozen=True, slots=True)
class QueueHistoryShape(QueueStatsShape):
    """One queue of `delayq stats --days N`.

    Each row of `days` has the date as `day`, and how many jobs were scheduled, acknowledged and so on, on this day.
    """

    days: list[dict[str, str | int]]


@dataclass(frozen=True, slots=True)
class StatsShape:
    """Answer of `delayq stats`."""

    queues: list[QueueStatsShape | UnreadableQueueShape | QueueHistoryShape]

    @classmethod
    def of(cls, stats: Iterable[QueueStats], history: Mapping[str, Sequence[DayCounts]]) -> Self:
        """Return the shape of the counts of queues. `history` has days by queue, or is empty without `--days`."""
        return cls([_queue_shape(one, history.get(one.queue)) for one in stats])


def _queue_shape(stats: QueueStats, days: Sequence[DayCounts] | None) -> QueueStatsShape | UnreadableQueueShape:
    if stats.error:
        return UnreadableQueueShape.of(stats)
    shape = QueueStatsShape.of(stats)
    if days is not None:
        return QueueHistoryShape(**members_of(shape), days=[{"day": day.day, **day.counters} for day in days])
    return shape


@dataclass(frozen=True, slots=True)
class PauseShape:
    """Answer of `delayq pause QUEUE` and `delayq resume QUEUE`.

    `paused_until_ms` is null if the queue is not paused, and 0 if the pause has no end.
    """

    queue: str
    paused: bool
    paused_until_ms: int | None
    paused_until: str | None

    @classmethod
    def of(cls, queue: str, until_ms: int | None) -> "PauseShape":
        """Return the shape of the pause of a queue."""
        return PauseShape(queue, until_ms is not None, until_ms, end_text(until_ms))

    def with_running(self, running: list[JobIdShape]) -> "PauseWaitShape":
        """Return the shape with the jobs that workers still have after the wait."""
        return PauseWaitShape(**members_of(self), running=running)


@dataclass(frozen=True, slots=True)
class PauseWaitShape(PauseShape):
    """Answer of `delayq pause QUEUE --wait`. `running` lists up to 20 jobs that workers still have after the wait."""

    running: list[JobIdShape]


@dataclass(frozen=True, slots=True)
class UpcomingShape:
    """Answer of `delayq upcoming`.

    `counts[n]` jobs become due in span n after `now_ms`, and `later` jobs after the last span.
    """

    queue: str
    now_ms: int
    now: str
    span_ms: int
    overdue: int
    counts: list[int]
    later: int

    @classmethod
    def of(cls, upcoming: Upcoming) -> Self:
        """Return the shape of the numbers of jobs that fall due."""
        return cls(
            queue=upcoming.queue,
            now_ms=upcoming.now_ms,
            now=format_instant(upcoming.now_ms),
            span_ms=upcoming.span_ms,
            overdue=upcoming.overdue,
            counts=upcoming.counts,
            later=upcoming.later,
        )


@dataclass(frozen=True, slots=True)
class UnknownQueueShape:
    """Answer of `delayq queue show` for an unknown queue; exit code 3."""

    queue: str
    state: Literal["unknown"] = "unknown"


@dataclass(frozen=True, slots=True)
class HoldsShape:
    """The number of jobs of a queue in each state.

    `other`: jobs without a state, which means damaged data. `outbox`: records of ended jobs for the relay.
    """

    scheduled: int
    ready_or_reserved: int
    failed: int
    completed: int
    other: int
    outbox: int


@dataclass(frozen=True, slots=True)
class QueueShape:
    """Answer of `delayq queue show` and `delayq queue set`.

    `paused_until_ms` is null if the queue is not paused, and 0 if the pause has no end.
    """

    queue: str
    lease_ms: int
    lease: str
    shards: int
    paused: bool
    paused_until_ms: int | None
    paused_until: str | None
    holds: HoldsShape

    @classmethod
    def of(cls, view: QueueView) -> Self:
        """Return the shape of the settings of a queue."""
        return cls(
            queue=view.queue,
            lease_ms=view.lease_ms,
            lease=format_duration(view.lease_ms),
            shards=view.shards,
            paused=view.paused_until_ms is not None,
            paused_until_ms=view.paused_until_ms,
            paused_until=end_text(view.paused_until_ms),
            holds=HoldsShape(**view.holds),
        )
