"""The protocols between a worker and the storage of its jobs, and the values that they exchange.

A driver provides one `Backend`. A worker asks it for three objects, by role:

    Consumer       a child: fetches jobs and settles them
    LeaseKeeper    the supervisor: renews the leases of all children, and settles the jobs of dead children
    QueueKeeper    the loops: the mover, the janitor and the relay

A delivery is one job handed to one consumer. Its entry id is its lease and its fence: an entry has one owner for its
whole life. Settling a delivery that no longer belongs to the caller changes nothing, and is answered FENCED. Other
methods ignore such a delivery.

Ids: a job id is unique in its queue. Each new delivery of a job has a new entry id. A queue never uses an entry id
again, and its entry ids grow, because handlers get them as fencing tokens (`JobContext.token`).

Leases: a lease starts with the delivery. The supervisor renews the leases of all deliveries of a child every third of
the shortest lease. A child starts its leases again only when it calls `pending`. If a lease is not renewed in time, the
job is delivered again, and this counts as a recovery.

Recoveries: a job keeps its number of recoveries when it is released or handed back. A job with more recoveries than
`Options.max_recoveries` is not delivered again: it fails, and its failure has the type WorkerVanished.

Stop requests: a cancel marks a reserved job, and the job stays reserved. If the job is delivered again before it ends,
the delivery has `is_stopping`.

Errors: a queue that refuses a call is logged and rests for a second, without an error for other queues. A backend that
does not answer raises BackendUnavailable, or OutcomeUnknown if a change may have taken effect.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, ClassVar, Final, Protocol, TypeVar

import msgspec

from delayq.core.errors import BackendError
from delayq.core.queue_order import Order, strict
from delayq.settings.connections import Routes

TripT = TypeVar("TripT")

MAX_ENTRY_BYTES: Final = 41
"""The longest entry id, in bytes. A longer one raises ValueError in the child, which would not find its slot again."""

EntryKey = tuple[str, str]
"""A queue and an entry id. Entries of two queues may have the same id."""


class DeliveryRef(msgspec.Struct, frozen=True, gc=False):
    """The queue, job id and entry id of a delivery."""

    queue: str
    id: str
    entry: str

    @property
    def key(self) -> EntryKey:
        """The queue and entry id, which no other delivery has."""
        return self.queue, self.entry


class Delivery(msgspec.Struct, frozen=True, gc=False):
    """A job that was handed to a consumer.

    `recoveries`: how many workers of this job have vanished. `due`: due time in epoch ms, as digits. `is_stopping`: a
    cancel asked the job to stop, so it is settled without a start.
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
        """The due time in epoch ms, or 0 if it is unreadable."""
        return int(self.due) if self.due.isdigit() else 0

    @property
    def key(self) -> EntryKey:
        """The queue and entry id, which no other delivery has."""
        return self.queue, self.entry

    @property
    def ref(self) -> DeliveryRef:
        """The delivery without its envelope."""
        return DeliveryRef(self.queue, self.id, self.entry)


class SettleAnswer(IntEnum):
    """The answer to one settlement."""

    FENCED = 0
    """Nothing changed, because the delivery no longer belongs to the caller."""
    SETTLED = 1
    STOP_ASKED = 2
    """Nothing changed, because a cancel asked the job to stop. The caller settles the job again, as Stopped.

    Only Released and Failed get this answer. Acked is carried out, because the job is done.
    """


class Acked(msgspec.Struct, frozen=True, gc=False):
    """The job is done. `result` (JSON) and `report` (JSON about the run, or b'') are kept for `retention_ms`.

    If `retention_ms` is 0, the job is forgotten at once.
    `is_followed`, here and below: a chain or a batch may continue after this job.
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
    """The job runs again `delay_ms` after it is settled. `envelope` has the new counts.

    `failure`, here and below: the reason, a `delayq.core.failure.Failure` as JSON. The backend adds earlier failures of
    the job to its `history`. If `failure` is b'', the stored failure stays.
    """

    is_followed: ClassVar[bool] = False

    queue: str
    id: str
    entry: str
    delay_ms: int
    envelope: bytes
    failure: bytes


class Failed(msgspec.Struct, frozen=True, gc=False):
    """The job failed for good. `envelope` has the new counts (b'' = unchanged)."""

    queue: str
    id: str
    entry: str
    envelope: bytes
    failure: bytes
    is_followed: bool = False


Settlement = Acked | Stopped | Released | Failed


class Promoted(msgspec.Struct, frozen=True, gc=False):
    """The result of one promotion.

    `promoted` jobs became ready, and `lost` jobs failed because their envelopes were missing. The next promotion is due
    in `wait_us` microseconds; 0 = now, negative = no job waits for a time. `owed` ended jobs wait for the relay.
    """

    promoted: int
    lost: int
    wait_us: int
    owed: int = 0


class Renewed(msgspec.Struct, frozen=True, gc=False):
    """The result of one renewal.

    `lease_ms`: the shortest lease of the queues. `more`: how many deliveries the consumer has beyond the given ones,
    because a reply was lost. `cancelled`: queue and job id of the deliveries that a cancel asked to stop.
    """

    lease_ms: int
    more: int
    cancelled: list[tuple[str, str]]


class Reclaimed(msgspec.Struct, frozen=True, gc=False):
    """The result of one reclaim: `reclaimed` jobs are ready again, and `failed` jobs lost their worker too often.

    `hold_ms` > 0: no job is reclaimed for this long, because leases may be wrong after a stall. `lease_ms`: lease of
    the queue. `more` = 1: more jobs may be waiting, so call again at once.
    """

    reclaimed: int
    failed: int
    hold_ms: int
    lease_ms: int = 30_000
    more: int = 0


class Switches(msgspec.Struct, frozen=True, gc=False):
    """The pause and restart switches of operators.

    `paused`: queues that are not read. `is_all_paused`: no queue is read. `restart_ms`: when all workers were last
    asked to restart, in epoch ms; 0 = never.
    """

    paused: frozenset[str] = frozenset()
    is_all_paused: bool = False
    restart_ms: int = 0


class Repaired(msgspec.Struct, frozen=True, gc=False):
    """The result of one repair: how many jobs were closed, delivered again, buried, mended and pruned.

    All but `pruned` are 0 in a queue that only delayq has changed.
    """

    closed: int = 0
    redelivered: int = 0
    buried: int = 0
    mended: int = 0
    pruned: int = 0


class Consumer(Protocol[TripT]):
    """The storage as one child sees it: one named consumer.

    Threads: the main thread of the child calls every method. While a slow handler blocks the main thread, the watchdog
    thread calls `begin`, `complete`, `hand_back` and `store_progress`. The child holds a lock, so that only one thread
    completes a trip; other calls of both threads may overlap.
    """

    def open(self) -> float:
        """Create what the queues lack, and return the shortest of their leases, in seconds."""
        ...

    def now_ms(self) -> int:
        """Return the time of the backend, in epoch ms, without asking it."""
        ...

    def begin(self, settled: Sequence[Settlement], limit: int) -> TripT:
        """Send settlements and a request for up to `limit` new jobs, and return without waiting for the reply.

        If `limit` is 0, no queue is read. A storage whose calls return at once may do the work here.
        """
        ...

    def complete(self, trip: TripT) -> tuple[list[int | BackendError], list[Delivery]]:
        """Wait for the reply of a trip. Return a SettleAnswer for each settlement, and the new jobs.

        A settlement that its queue refused has an error in its place, and must be settled again. If there is no reply,
        BackendError is raised: everything must be settled again, and `pending` finds jobs that were delivered.
        """
        ...

    def wait(self, timeout: float) -> list[Delivery]:
        """Wait up to `timeout` seconds for one new job. A signal ends the wait early.

        If a signal ends the wait, the consumer returns `pending()`, because the interrupted request may have delivered
        jobs. The signal makes the descriptor `wake_fd` of `Backend.consumer` readable. The consumer then reads from the
        descriptor; otherwise every later wait would end at once.
        """
        ...

    def pending(self) -> list[Delivery]:
        """Read the jobs that were delivered to this consumer and are not settled.

        The deliveries keep their entry ids, and their leases start again. A child calls this before it starts a job
        whose lease may have expired.
        """
        ...

    def hand_back(self, jobs: Sequence[DeliveryRef]) -> None:
        """Make jobs ready again that were not started. This costs no attempt and counts no recovery."""
        ...

    def store_progress(self, progress: Sequence[tuple[DeliveryRef, bytes]]) -> None:
        """Store progress reports of running jobs: JSON objects."""
        ...

    def switches(self) -> Switches:
        """Return the pause and restart switches, as they were last read."""
        ...


class LeaseKeeper(Protocol):
    """The storage as the supervisor sees it. Only the main thread of the supervisor calls it.

    If a call blocks, the supervisor cannot enforce timeouts. So a call raises BackendUnavailable after a few seconds.
    """

    def open(self) -> float:
        """Create what the queues lack, and return the shortest of their leases, in seconds."""
        ...

    def now_ms(self) -> int:
        """Return the time of the backend, in epoch ms, without asking it."""
        ...

    def restart_ms(self) -> int:
        """Return when all workers were asked to restart before `open`, in epoch ms; 0 = never."""
        ...

    def renew(self, consumer: str, jobs: Sequence[DeliveryRef]) -> Renewed:
        """Renew the leases of these jobs of a consumer."""
        ...

    def pending(self, consumer: str) -> list[Delivery]:
        """Read the jobs that were delivered to a consumer and are not settled."""
        ...

    def stop_requests(self) -> list[tuple[str, str]]:
        """Return queue and id of jobs that a cancel asked to stop since the last call, without waiting.

        The list comes from notifications, which can get lost; `renew` finds every request.
        """
        ...

    def settle_after_death(
        self,
        done: Sequence[DeliveryRef],
        unstarted: Sequence[DeliveryRef],
        vanished: Sequence[DeliveryRef],
        decided: Sequence[Settlement],
    ) -> list[DeliveryRef]:
        """Settle the jobs of a dead child: acknowledge `done`, hand back `unstarted`, and carry out `decided`.

        `vanished` jobs ran when the child died. Each counts one recovery and is delivered again, or fails if it has too
        many. Returns the jobs that failed in this way. If a settlement of `decided` is answered STOP_ASKED, the keeper
        itself settles the job as Stopped. After an error, the supervisor calls `pending` and this method again.
        """
        ...


class QueueKeeper(Protocol):
    """The storage as the mover, the janitor and the relay see it. One thread calls it.

    A queue that refuses a call raises CallRefused. There is no `open`: each method also works in an empty storage.
    """

    def queues(self) -> list[str]:
        """List the names of the queues to serve."""
        ...

    def promote(self, queue: str) -> Promoted:
        """Make due jobs ready. One call handles a limited number of jobs."""
        ...

    def reclaim(self, queue: str) -> Reclaimed:
        """Take back jobs whose lease has expired. Each counts one recovery.

        The janitor calls this every third of a lease. If the last call is missing or was more than half a lease ago,
        supervisors may have been unable to renew. Then the backend reclaims no job for one lease.
        """
        ...

    def repair(self, queue: str) -> Repaired:
        """Close jobs that plain consumers acknowledged, forget jobs whose retention is over, and mend damage."""
        ...

    def follow_up(self, queue: str) -> int:
        """Send the follow-up jobs of ended jobs. Return the number of ended jobs."""
        ...


class WakeUps(Protocol):
    """Notifications for the loops. They can get lost, so each loop also looks at its queues at regular intervals."""

    @property
    def is_subscribed(self) -> bool:
        """True if notifications arrive, as far as is known."""
        ...

    def wait(self, seconds: float) -> list[tuple[str, str]]:
        """Wait until a notification arrives, at most `seconds`. Return the two words of each notification."""
        ...


class WorkerRegistry(Protocol):
    """The list of live workers, for operators. A worker need not be on the list to work."""

    def announce(self, documents: Mapping[str, Mapping[str, Any]], now_ms: int) -> None:
        """Store a description of each named child. It expires unless it is stored again."""
        ...

    def leave(self, names: Sequence[str], now_ms: int) -> None:
        """Remove children from the list, and children whose descriptions have expired."""
        ...


class Backend(Protocol):
    """The recipe of one driver: it makes the objects that use one storage of jobs.

    A recipe is made in the parent process and holds no connection, so that processes can be forked. Each method opens a
    connection of its own, in the process that calls it, at the latest with the first call of the returned object.

    The parent also forks while it uses its lease keeper and its worker registry. The forked processes inherit these two
    objects, and neither use nor close them. If a storage forbids this (SQLite does), they must hold no open connection
    between two calls.
    """

    where: str
    """The address of the storage, without secrets, for messages."""

    has_loops: bool
    """True if the storage needs a mover, a janitor and a relay. Otherwise `queue_keeper` is never called."""

    def shares_jobs_with(self, other: "Backend") -> bool:
        """Return True if a worker of this backend receives the jobs that are sent to the other one."""
        ...

    def prepare(self) -> None:
        """Load code and files once, in the parent, before children are forked. No connection is opened."""
        ...

    def check(self) -> None:
        """Ask the server for settings that would lose jobs. Raises UnsafeSetup."""
        ...

    def consumer(
        self,
        queues: Sequence[str],
        *,
        name: str,
        order: Order = strict,
        forced: bool = False,
        wake_fd: int | None = None,
    ) -> Consumer[Any]:
        """Make the consumer of a child.

        `name`: its name in the storage; each child has a new one. `order`: puts the queues into order, for each read.
        `forced`: read during maintenance too. `wake_fd`: a descriptor that becomes readable when a signal comes; a
        blocked read ends then.
        """
        ...

    def lease_keeper(self, queues: Sequence[str]) -> LeaseKeeper:
        """Make the lease keeper of a supervisor."""
        ...

    def queue_keeper(self, queues: Sequence[str], *, name: str) -> QueueKeeper:
        """Make the queue keeper of the loops. `queues` are served whether they are listed or not."""
        ...

    def wake_ups(self) -> WakeUps | None:
        """Subscribe to notifications for the mover. None = this storage sends none, so the mover looks every second."""
        ...

    def worker_registry(self) -> WorkerRegistry | None:
        """Make the list of workers. None = this storage keeps none."""
        ...

    def session(self, *, is_async: bool, routes: Routes) -> Any:
        """Make the session of a client that follows these routes: of DelayQ, or with `is_async` of AsyncDelayQ.

        These protocols do not describe a session yet. DelayQ and AsyncDelayQ accept the session of the Redis driver.
        """
        ...
