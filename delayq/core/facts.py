"""What is known of a server and its queues, for `diagnosis` to judge."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from delayq.core.control import Control
from delayq.core.views import QueueStats, Silent, WorkerInfo


class Refusal(StrEnum):
    """Why a server that answers refuses writes, by its own word for it."""

    DISK = "MISCONF"
    MEMORY = "OOM"
    REPLICAS = "NOREPLICAS"
    REPLICA = "READONLY"


@dataclass(frozen=True, slots=True)
class ServerState:
    """Whether a server takes writes, how full its memory is, and whether it saves. None: that cannot be told.

    `node` names it among the primaries of a cluster. `memory_limit_bytes` is 0 without a limit. `failing` names what it
    could not save lately. `forbidden`: commands that this user may not call.
    """

    node: str = ""
    refuses: Refusal | None = None
    writable: bool | None = None
    memory_bytes: int | None = None
    memory_limit_bytes: int | None = None
    failing: tuple[str, ...] = ()
    forbidden: tuple[str, ...] = ()

    @property
    def fullness(self) -> float:
        """The share of its memory limit that is used; 0 without a limit, or when that cannot be told."""
        return (self.memory_bytes or 0) / self.memory_limit_bytes if self.memory_limit_bytes else 0.0


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What the server said of itself. None: it may not be asked (`forbidden` names the commands)."""

    product: str
    version: tuple[int, int, int] | None
    eviction: str | None
    persists: bool | None
    skew_ms: int
    """This machine's clock minus the server's."""
    forbidden: tuple[str, ...] = ()
    node: str = ""
    """Which one it is, of the primaries of a cluster."""
    replicas: int | None = None
    """How many follow it."""
    needs_replicas: int | None = None
    """With how many of them in touch it takes writes (min-replicas-to-write)."""
    appendfsync: str | None = None
    """When its append-only file is synced."""
    state: ServerState = ServerState()


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """A key of ours that holds something else: `found` instead of `expected`, both in the words of `TYPE`."""

    key: str
    found: str
    expected: str

    @property
    def aside(self) -> str:
        """A name to give it: in a cluster it must stay in the same slot, which the part in braces decides."""
        return f"{self.key}.foreign" if "{" in self.key else f"{{{self.key}}}.foreign"


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """One queue. `names`: of the jobs looked at; `unknown`: those a worker met without a handler; `outsiders`: plain
    consumers seen lately; `foreign`: its keys that hold something else; `broken`: why it could not be looked at;
    `owed`: follow-ups of ended jobs that wait for a relay, the oldest of them since `owed_for_ms`;
    `silent`: delivered jobs whose holder has been silent for longer than a lease."""

    queue: str
    stats: QueueStats | None = None
    names: frozenset[str] = frozenset()
    unknown: frozenset[str] = frozenset()
    outsiders: int = 0
    foreign: tuple[ForeignKey, ...] = ()
    broken: str = ""
    owed: int = 0
    owed_for_ms: int = 0
    never: int = 0
    """How many jobs have a due time after the year 9999: `never_id` is one of them, `never_score` its score."""
    never_id: str = ""
    never_score: str = ""
    silent: Silent = field(default_factory=Silent)

    @property
    def is_empty(self) -> bool:
        """Whether no job is in it, in any state; False when that cannot be told."""
        return self.stats is not None and not any(
            (self.stats.scheduled, self.stats.ready, self.stats.reserved, self.stats.failed, self.stats.completed)
        )


@dataclass(frozen=True, slots=True)
class Facts:
    """All that is known. `foreign`: keys of no queue that hold something else. `workers` None: that cannot be told.
    `handlers` None: no application was named, so names cannot be compared."""

    where: str
    prefix: str
    server: ServerFacts
    queues: tuple[QueueFacts, ...] = ()
    workers: tuple[WorkerInfo, ...] | None = ()
    foreign: tuple[ForeignKey, ...] = ()
    other_prefixes: tuple[str, ...] = ()
    handlers: frozenset[str] | None = None
    control: Control = field(default_factory=Control)
    app: str = field(default="")
    more_servers: tuple[ServerFacts, ...] = ()
    """The other primaries of a cluster."""
    unlisted: tuple[str, ...] = ()
    """Queues that hold jobs or follow-ups and are not on the list of queues."""
    on_disk: tuple[str, ...] = ()
    """Queues whose answers wait for the disk (durability `fsync`)."""
    away: tuple[str, ...] = ()
    """Why some of it could not be looked at: nodes of a cluster that are away, a sentence for each."""
    replicated: bool = False
    """Whether a replica takes over when a primary is lost: behind sentinels, and in a cluster."""
