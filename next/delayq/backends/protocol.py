"""The seam between workers and whatever keeps their jobs.

A worker takes deliveries and settles each of them exactly once. The entry id of a delivery is its lease: it has one
owner for its whole life, and settling with an entry that is no longer the job's changes nothing and answers "fenced".
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, ClassVar, Protocol, TypeVar

import msgspec

from delayq.core.errors import BackendError

TripT = TypeVar("TripT")


EntryKey = tuple[str, str]
"""A queue and an entry of it: the streams of two queues may give the same entry id."""


class DeliveryRef(msgspec.Struct, frozen=True, gc=False):
    """A job that a consumer holds, by its id and its entry."""

    queue: str
    id: str
    entry: str

    @property
    def key(self) -> EntryKey:
        """What tells this delivery from all others."""
        return self.queue, self.entry


class Delivery(msgspec.Struct, frozen=True, gc=False):
    """A job that a consumer has been given. `recoveries` counts the workers that vanished while they held it.

    `due_ms` is when the job was due. `is_stopping`: it was asked to stop, and is to be ended without being started.
    """

    queue: str
    id: str
    entry: str
    envelope: bytes
    recoveries: int = 0
    due: bytes = b"0"
    is_stopping: bool = False

    @property
    def due_ms(self) -> int:
        """When the job was due, in epoch ms; 0 when that cannot be read."""
        return int(self.due) if self.due.isdigit() else 0

    @property
    def key(self) -> EntryKey:
        """What tells this delivery from all others."""
        return self.queue, self.entry

    @property
    def ref(self) -> DeliveryRef:
        """Return what names this delivery."""
        return DeliveryRef(self.queue, self.id, self.entry)


class SettleAnswer(IntEnum):
    """The answer to one settlement."""

    FENCED = 0
    """Nothing changed, because the delivery no longer belongs to the caller."""
    SETTLED = 1
    STOP_ASKED = 2
    """Nothing changed, because a cancel asked the job to stop. The caller settles it again, as Stopped."""


class Acked(msgspec.Struct, frozen=True, gc=False):
    """The job is done. Its result, JSON, is kept for `retention_ms`; so is `report`, how it ran, JSON or b''.

    `is_followed`, here and below: something may follow the end of the job.
    """

    queue: str
    id: str
    entry: str
    retention_ms: int = 0
    result: bytes = b"null"
    report: bytes = b""
    is_followed: bool = False


class Stopped(msgspec.Struct, frozen=True, gc=False):
    """The job ended because a cancel asked it to stop. It is forgotten, and counts as cancelled."""

    is_followed: ClassVar[bool] = True

    queue: str
    id: str
    entry: str


class Released(msgspec.Struct, frozen=True, gc=False):
    """The job runs again after `delay_ms`, with a rewritten envelope and the failure that led to it."""

    is_followed: ClassVar[bool] = False

    queue: str
    id: str
    entry: str
    delay_ms: int
    envelope: bytes
    failure: bytes


class Failed(msgspec.Struct, frozen=True, gc=False):
    """The job is given up, with a rewritten envelope and the failure that led to it."""

    queue: str
    id: str
    entry: str
    envelope: bytes
    failure: bytes
    is_followed: bool = False


Settlement = Acked | Stopped | Released | Failed


class Promoted(msgspec.Struct, frozen=True, gc=False):
    """The result of one promotion. `wait_us`: until the next one is due, 0 = now, negative = nothing to wait for.

    `owed`: ends of jobs that a relay has to follow up.
    """

    promoted: int
    lost: int
    wait_us: int
    owed: int = 0


class Renewed(msgspec.Struct, frozen=True, gc=False):
    """`more`: entries that the consumer holds beyond those given.

    `cancelled`: queue and id of jobs that are asked to stop.
    """

    lease_ms: int
    more: int
    cancelled: list[tuple[str, str]]


class Reclaimed(msgspec.Struct, frozen=True, gc=False):
    """The result of one reclaim. `hold_ms` > 0: nothing moves for so long, because leases cannot be trusted yet.

    `more`: call again at once.
    """

    reclaimed: int
    failed: int
    hold_ms: int
    lease_ms: int = 30_000
    more: int = 0


class Switches(msgspec.Struct, frozen=True, gc=False):
    """The switches of operators. `paused`: queues from which nothing is taken; `is_all_paused`: none is read.

    `restart_ms`: when all workers were last asked to restart; 0 = never.
    """

    paused: frozenset[str] = frozenset()
    is_all_paused: bool = False
    restart_ms: int = 0


class Repaired(msgspec.Struct, frozen=True, gc=False):
    """The result of one repair of a queue. All but `pruned` are 0 unless something happened outside of delayq."""

    closed: int = 0
    redelivered: int = 0
    buried: int = 0
    mended: int = 0
    pruned: int = 0


class Consumer(Protocol[TripT]):
    """The backend of a child: one named consumer that takes deliveries and settles them.

    A queue that refuses a call is logged and left alone for a second; nothing is raised for it.
    """

    def open(self) -> float:
        """Make the queues ready to be waited for, and return the shortest of their leases in seconds."""
        ...

    def now_ms(self) -> int:
        """Return the time of the backend, in epoch ms, as far as it is known here."""
        ...

    def begin(self, settled: Sequence[Settlement], limit: int) -> TripT:
        """Send one trip that settles what is finished and takes up to `limit` new jobs, and return at once."""
        ...

    def complete(self, trip: TripT) -> tuple[list[int | BackendError], list[Delivery]]:
        """Return the answers of a trip: a SettleAnswer for each settlement, and the new jobs.

        A settlement that its queue refused has an error in its place, and must be settled again.
        Raises BackendError when there are no answers at all. Everything must then be settled again, and what was taken
        is found by `pending`.
        """
        ...

    def wait(self, timeout: float) -> list[Delivery]:
        """Wait up to `timeout` seconds for one new job."""
        ...

    def pending(self) -> list[Delivery]:
        """Read again what this consumer has been given and has not settled."""
        ...

    def hand_back(self, held: Sequence[DeliveryRef]) -> None:
        """Give back jobs that were not started; nothing is counted against them."""
        ...

    def store_progress(self, progress: Sequence[tuple[DeliveryRef, bytes]]) -> None:
        """Store how far jobs are: JSON objects."""
        ...

    def switches(self) -> Switches:
        """Return what keeps the consumer from taking jobs, as it was last read."""
        ...


class WorkerRegistry(Protocol):
    """The list of workers."""

    def announce(self, documents: Mapping[str, Mapping[str, Any]], now_ms: int) -> None:
        """Store what some workers are and do, by their names."""
        ...

    def leave(self, names: Sequence[str], now_ms: int) -> None:
        """Take workers off the list, and those that died: their last announcement has expired."""
        ...


class LeaseKeeper(Protocol):
    """The backend of a supervisor, for its children. One queue that refuses a call does not affect the others."""

    def renew(self, consumer: str, held: Sequence[DeliveryRef]) -> Renewed:
        """Begin the leases of these jobs anew."""
        ...

    def pending(self, consumer: str) -> list[Delivery]:
        """Read what a consumer has been given and has not settled."""
        ...

    def stop_requests(self) -> list[tuple[str, str]]:
        """Return queue and id of jobs that were asked to stop since the last call, as far as hints arrived."""
        ...

    def settle_after_death(
        self,
        done: Sequence[DeliveryRef],
        unstarted: Sequence[DeliveryRef],
        vanished: Sequence[DeliveryRef],
        decided: Sequence[Settlement],
    ) -> list[DeliveryRef]:
        """Settle for a dead child, and return the jobs that failed because too many of their processes vanished.

        What was done is acknowledged, what was unstarted handed back, what vanished charged with a recovery; `decided`
        is settled as it says.
        """
        ...


class QueueKeeper(Protocol):
    """The backend of the mover, the janitor and the relay. A queue that refuses a call raises CallRefused."""

    def queues(self) -> list[str]:
        """List the names of the queues to serve."""
        ...

    def promote(self, queue: str) -> Promoted:
        """Make the jobs ready that are due."""
        ...

    def reclaim(self, queue: str) -> Reclaimed:
        """Take back the jobs whose lease is over."""
        ...

    def repair(self, queue: str) -> Repaired:
        """Close what others acknowledged, forget what was kept long enough, mend what is damaged."""
        ...

    def follow_up(self, queue: str) -> int:
        """Send what follows the ends of jobs; return how many ends that were."""
        ...
