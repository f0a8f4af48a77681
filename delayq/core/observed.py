"""What one look at everything finds, for metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from delayq.core.activity import Spread
from delayq.core.facts import ServerState
from delayq.core.views import QueueStats


@dataclass(frozen=True, slots=True)
class QueueObserved:
    """One queue, all its shards together.

    `overdue`: jobs whose time has come and that nobody has yet. `bytes`: memory its keys take, about; None
    where the server does not say. `late` and `took`: of all attempts that were ever counted. `promoted`: from due time
    to the stream, of all jobs that were ever promoted. `silent`: jobs held by workers that have been silent for longer
    than a lease.
    """

    stats: QueueStats
    overdue: int
    bytes: int | None
    late: Spread = field(default_factory=Spread)
    took: Spread = field(default_factory=Spread)
    promoted: Spread = field(default_factory=Spread)
    silent: int = 0


@dataclass(frozen=True, slots=True)
class Observed:
    """All queues that could be looked at, and how many workers each has. `unseen`: names of those that could not.

    `rest`: the counts of the queues that were not looked at in full, as there are many; `rest_counters`: what these
    have counted, added up, which only grows. `servers`: the state of each primary. `skew_ms`: this machine's clock
    minus that of Redis.
    """

    queues: tuple[QueueObserved, ...] = ()
    workers: Mapping[str, int] = field(default_factory=dict)
    unseen: tuple[str, ...] = ()
    reachable: bool = True
    servers: tuple[ServerState, ...] = ()
    skew_ms: int | None = None
    rest: tuple[QueueStats, ...] = ()
    rest_counters: Mapping[str, int] = field(default_factory=dict)
