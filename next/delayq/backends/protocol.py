"""The protocols between a worker and the storage of its jobs, and the values that they exchange.

Read this module first if you write a driver: the code that connects delayq to one kind of storage. A driver provides
one class, `Backend`. A worker asks its backend for three objects, one for each kind of process:

    Consumer       for a child, which runs jobs: fetches jobs and settles them
    LeaseKeeper    for the supervisor, the parent process: renews leases, and settles the jobs of dead children
    QueueKeeper    for the loops (mover, janitor and relay): makes due jobs ready, repairs queues, sends follow-up jobs

States: a job is scheduled (not due yet), ready (a consumer may fetch it), reserved (delivered to a consumer), failed or
completed. A job that is acknowledged without a retention is deleted.

Deliveries: a delivery is one job that was handed to one consumer. A consumer settles each delivery, which means to
report the outcome, or hands it back without a start. A delivery that is neither settled nor handed back is pending.

Ids: a job id is unique in its queue. Each new delivery of a job has a new entry id. A queue never uses an entry id
again, and its entry ids grow, because handlers get them as fencing tokens (`JobContext.token`).

Fencing: a delivery never moves to another consumer, and its entry id identifies it. If the job has been delivered
again, the older delivery is no longer valid. Settling an older delivery changes nothing, and is answered FENCED. Other
methods ignore an older delivery.

Leases: a lease is the time for which a delivery belongs to its consumer. It starts with the delivery. The supervisor
renews the leases of all deliveries of a child every third of the shortest lease. A child itself renews its leases only
by calling `pending`. If a lease is not renewed in time, the job is delivered again.

Recoveries: if the worker of a job vanishes, because it dies or does not renew the lease, the next delivery of the job
counts as a recovery. A job keeps its number of recoveries when it is released or handed back. If the number would
exceed `Options.max_recoveries`, the job is not delivered again: it fails, and its failure has the type WorkerVanished.

Stop requests: a cancel cannot delete a reserved job. It marks the job, and the job stays reserved until its worker
settles it. If the job is delivered again before that, the new delivery has `is_stopping`.

Errors: if a backend does not answer, its methods raise BackendUnavailable, or OutcomeUnknown if a change may have taken
effect. If a call fails for one queue only, a Consumer or LeaseKeeper logs the error and does not use this queue for a
second; a QueueKeeper raises CallRefused. Other queues are not affected.
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
"""Maximum length of an entry id, in bytes.

A slot is the entry of a job in the memory that a child shares with its supervisor. A longer id would not fit into a
slot, and the slot could not be matched with its delivery. So the child raises ValueError for a longer id.
"""

EntryKey = tuple[str, str]
"""A queue and an entry id. Both are needed, because entries of two queues may have the same id."""


class DeliveryRef(msgspec.Struct, frozen=True, gc=False):
    """The queue, job id and entry id of a delivery: what is needed to renew, hand back or acknowledge it."""

    queue: str
    id: str
    entry: str

    @property
    def key(self) -> EntryKey:
        """The queue and entry id, which no other delivery has."""
        return self.queue, self.entry


class Delivery(msgspec.Struct, frozen=True, gc=False):
    """A job that was handed to a consumer.

    `id`, `envelope`: job id and envelope (the job as JSON); both are empty if the entry is not a job of delayq.
    `recoveries`: how many workers of this job have vanished. `due`: due time in epoch ms, as digits. `is_stopping`: a
    cancel asked the job to stop, so the worker settles the job as Stopped without a start.
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
    """The settlement took effect."""
    STOP_ASKED = 2
    """Nothing changed, because a cancel asked the job to stop. The caller must settle the job again, as Stopped.

    Only Released and Failed get this answer. An Acked job is done, so its settlement takes effect in spite of a cancel.
    """


class Acked(msgspec.Struct, frozen=True, gc=False):
    """The job is done.

    `retention_ms`: how long the completed job is kept, in ms; 0 = delete the job at once. `result` (JSON) and `report`
    (JSON about the run; b'' = none) are kept with the job. `is_followed`, here and below: a follow-up job, such as the
    next job of a chain, may have to be sent when this job ends, so the backend must look for one.
    """

    queue: str
    id: str
    entry: str
    retention_ms: int = 0
    result: bytes = b"null"
    report: bytes = b""
    is_followed: bool = False


class Stopped(msgspec.Struct, frozen=True, gc=False):
    """The job ended because a cancel asked it to stop. The job is deleted, and counts as cancelled."""

    is_followed: ClassVar[bool] = True

    queue: str
    id: str
    entry: str


class Released(msgspec.Struct, frozen=True, gc=False):
    """The job becomes scheduled, and is due `delay_ms` after this settlement.

    `envelope`: the envelope with the new counts of attempts and exceptions. `failure`, here and below: the reason, a
    `delayq.core.failure.Failure` as JSON. The backend copies earlier failures of the job into the `history` of this
    failure. If `failure` is b'', the stored failure stays.
    """

    is_followed: ClassVar[bool] = False

    queue: str
    id: str
    entry: str
    delay_ms: int
    envelope: bytes
    failure: bytes


class Failed(msgspec.Struct, frozen=True, gc=False):
    """The job failed for good. `envelope`: the envelope with the new counts; b'' = unchanged."""

    queue: str
    id: str
    entry: str
    envelope: bytes
    failure: bytes
    is_followed: bool = False


Settlement = Acked | Stopped | Released | Failed


class Promoted(msgspec.Struct, frozen=True, gc=False):
    """The result of one promotion.

    `promoted`: number of jobs that became ready. `lost`: number of jobs that failed because their envelopes were
    missing. `wait_us`: microseconds until the next promotion is due; 0 = now, negative = there is no such time: no job
    is scheduled, the stream is full, or the queue is paused. `owed`: number of records of ended jobs that wait for the
    relay.
    """

    promoted: int
    lost: int
    wait_us: int
    owed: int = 0


class Renewed(msgspec.Struct, frozen=True, gc=False):
    """The result of one renewal.

    `lease_ms`: the shortest lease of the queues, in ms. `more`: how many pending deliveries the consumer has beyond the
    given ones, for example because the reply to a read was lost. `cancelled`: queue and job id of the given deliveries
    that a cancel asked to stop.
    """

    lease_ms: int
    more: int
    cancelled: list[tuple[str, str]]


class Reclaimed(msgspec.Struct, frozen=True, gc=False):
    """The result of one reclaim.

    `reclaimed`: number of jobs that are ready again. `failed`: number of jobs that failed because their workers
    vanished too often. `hold_ms` > 0: no job is reclaimed for this long, because leases of live workers may have
    expired during an outage or a step of the clock. `lease_ms`: lease of the queue, in ms. `more` = 1: more deliveries
    may have to be checked, so call again at once.
    """

    reclaimed: int
    failed: int
    hold_ms: int
    lease_ms: int = 30_000
    more: int = 0


class Switches(msgspec.Struct, frozen=True, gc=False):
    """The pause and restart switches of operators.

    `paused`: queues that are not read. `is_all_paused`: no queue is read. `restart_ms`: time of the last request to all
    workers to restart, in epoch ms; 0 = none.
    """

    paused: frozenset[str] = frozenset()
    is_all_paused: bool = False
    restart_ms: int = 0


class Repaired(msgspec.Struct, frozen=True, gc=False):
    """The result of one repair: numbers of jobs. All but `pruned` are 0 in a queue that only delayq has changed.

    closed        acknowledged by a plain consumer (a program without delayq), and now settled
    redelivered   ready again
    buried        entries that are not jobs of delayq, moved to `failed`
    mended        jobs whose damaged data was repaired
    pruned        deleted, because the time for which they are kept was over
    """

    closed: int = 0
    redelivered: int = 0
    buried: int = 0
    mended: int = 0
    pruned: int = 0


class Consumer(Protocol[TripT]):
    """The storage as one child sees it: one named consumer.

    A trip is one round trip to the storage. `begin` starts a trip and `complete` ends it, so that the child can run
    jobs while the reply is on its way.

    Threads: `begin`, `complete` and `hand_back` are called by the main thread of the child and, while a slow handler
    runs, by the watchdog thread. Only the watchdog thread calls `store_progress`. A lock of the child prevents
    both threads from completing the same trip. All other calls of the two threads may overlap. Any thread may call
    `now_ms`. Only the main thread calls the other methods.
    """

    def open(self) -> float:
        """Create missing parts of the queues, and return the shortest lease, in seconds. This is the first call."""
        ...

    def now_ms(self) -> int:
        """Return the time of the backend, in epoch ms, without asking it."""
        ...

    def begin(self, settled: Sequence[Settlement], limit: int) -> TripT:
        """Send settlements and a request for up to `limit` new jobs. Return a trip without waiting for the reply.

        If `limit` is 0, request no jobs. A storage without a connection to a server may do all work here.
        """
        ...

    def complete(self, trip: TripT) -> tuple[list[int | BackendError], list[Delivery]]:
        """Wait for the reply of a trip. Return a SettleAnswer or an error for each settlement, and the new jobs.

        An error means that the queue refused the settlement; the child sends the settlement again later. If the reply
        is lost, raise BackendError. The child then sends all settlements again, and calls `pending` to find jobs that
        were delivered.
        """
        ...

    def wait(self, timeout: float) -> list[Delivery]:
        """Wait up to `timeout` seconds for new jobs, and return a few of them. A signal ends the wait early.

        A signal makes the descriptor `wake_fd` of `Backend.consumer` readable. The consumer then reads from the
        descriptor, because otherwise every later wait would end at once. `wait` then returns `pending()`, because
        the interrupted request may have delivered jobs.
        """
        ...

    def pending(self) -> list[Delivery]:
        """Read the pending deliveries of this consumer, and renew their leases.

        The deliveries keep their entry ids. The child calls this method before it starts a job whose lease may have
        expired, and after a lost reply.
        """
        ...

    def hand_back(self, jobs: Sequence[DeliveryRef]) -> None:
        """Make jobs that were not started ready again. This costs no attempt and does not count as a recovery."""
        ...

    def store_progress(self, progress: Sequence[tuple[DeliveryRef, bytes]]) -> None:
        """Store the progress reports of running jobs. Each report is a JSON object. A refused report may be dropped."""
        ...

    def switches(self) -> Switches:
        """Return the pause and restart switches, as they were last read."""
        ...


class LeaseKeeper(Protocol):
    """The storage as the supervisor sees it. Only the main thread of the supervisor calls it.

    While a call waits, the supervisor cannot enforce timeouts. So a call must raise BackendUnavailable, or
    OutcomeUnknown, after one or two seconds without an answer.
    """

    def open(self) -> float:
        """Create missing parts of the queues, and return the shortest lease, in seconds. This is the first call."""
        ...

    def now_ms(self) -> int:
        """Return the time of the backend, in epoch ms, without asking it."""
        ...

    def restart_ms(self) -> int:
        """Return the time of the last restart request that was made before `open`, in epoch ms; 0 = none."""
        ...

    def renew(self, consumer: str, jobs: Sequence[DeliveryRef]) -> Renewed:
        """Renew the leases of these jobs of a consumer. `jobs`: all jobs that the child has; the list may be empty."""
        ...

    def pending(self, consumer: str) -> list[Delivery]:
        """Read the pending deliveries of a consumer."""
        ...

    def stop_requests(self) -> list[tuple[str, str]]:
        """Return queue and id of jobs that a cancel asked to stop since the last call, without waiting.

        The list comes from notifications, which can get lost. It only makes a stop faster, because `renew` finds every
        stop request. A storage without notifications returns an empty list.
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

        `vanished` jobs ran when the child died. Each of them counts one recovery and is delivered again, or fails if it
        has too many recoveries. Returns the `vanished` jobs that failed. If the answer to a settlement of `decided` is
        STOP_ASKED, the keeper itself settles the job as Stopped. One call may handle only a part of the jobs.

        The supervisor repeats `pending` and this method until no job of the child is pending, or until a call changes
        nothing. After an error, the supervisor tries again on its next turn.
        """
        ...


class QueueKeeper(Protocol):
    """The storage as the mover, the janitor and the relay see it. One thread calls it.

    If a call fails for this queue only, the method raises CallRefused. There is no `open`, so each method must also
    work in an empty storage.
    """

    def queues(self) -> list[str]:
        """List the names of the queues to serve."""
        ...

    def promote(self, queue: str) -> Promoted:
        """Make due jobs ready. One call handles a limited number of jobs; `wait_us` = 0 means that more are due."""
        ...

    def reclaim(self, queue: str) -> Reclaimed:
        """Take back jobs whose lease has expired. Each of them counts one recovery, and becomes ready or fails.

        The janitor calls this method every third of a lease. The backend must store the time of each call. If no time
        is stored, or if the stored time lies in the future or is more than half a lease ago, leases of live workers may
        have expired, for example after an outage or a clock change. The backend must then reclaim no job for one lease.
        """
        ...

    def repair(self, queue: str) -> Repaired:
        """Settle jobs that plain consumers acknowledged, delete jobs whose retention is over, and repair damage."""
        ...

    def follow_up(self, queue: str) -> int:
        """Send the follow-up jobs of ended jobs. Return the number of ended jobs that were handled."""
        ...


class WakeUps(Protocol):
    """Notifications for the loops: messages that name a queue with a new due time or a record for the relay.

    Notifications can get lost, so each loop also checks its queues at regular intervals.
    """

    @property
    def is_subscribed(self) -> bool:
        """True if notifications arrive, as far as is known."""
        ...

    def wait(self, seconds: float) -> list[tuple[str, str]]:
        """Wait until a notification arrives, at most `seconds`. Return the queue and the due time of each notification.

        The due time is in epoch ms, as digits. If the storage cannot be reached, sleep and return an empty list.
        """
        ...


class WorkerRegistry(Protocol):
    """The list of live workers, for operators. A worker need not be on the list to work."""

    def announce(self, documents: Mapping[str, Mapping[str, Any]], now_ms: int) -> None:
        """Store a description of each named child. A description expires unless it is stored again."""
        ...

    def leave(self, names: Sequence[str], now_ms: int) -> None:
        """Remove the named children from the list, and also all other children whose descriptions have expired."""
        ...


class Backend(Protocol):
    """The factory of one driver: it makes the objects that use one storage of jobs.

    A Backend is made in the parent process and holds no connection, so that processes can be forked. Each returned
    object has its own connection. It is opened in the process that called the method, at the latest with the first call
    of the object.

    The parent also forks while it uses its lease keeper and its worker registry. The forked processes inherit these two
    objects, and neither use nor close them. If a storage does not allow open connections to be inherited by a fork
    (SQLite does not), the two objects must close their connections after each call.
    """

    where: str
    """The address of the storage, without secrets, for messages."""

    has_loops: bool
    """True if the storage needs a mover, a janitor and a relay. If False, a worker never calls `queue_keeper`."""

    def shares_jobs_with(self, other: "Backend") -> bool:
        """Return True if a worker of this backend receives the jobs that are sent to the other one."""
        ...

    def prepare(self) -> None:
        """Load code and files once, in the parent, before children are forked. Open no connection."""
        ...

    def check(self) -> None:
        """Raise UnsafeSetup if the server has settings that can lose jobs."""
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

        `name`: name of the consumer in the storage; no two children ever have the same name. `order`: sorts the queues
        by their priority, before each read. `forced`: ignore the maintenance switch, with which operators pause all
        queues. `wake_fd`: a descriptor that becomes readable when a signal arrives, which must end a blocked read.
        """
        ...

    def lease_keeper(self, queues: Sequence[str]) -> LeaseKeeper:
        """Make the lease keeper of a supervisor."""
        ...

    def queue_keeper(self, queues: Sequence[str], *, name: str) -> QueueKeeper:
        """Make the queue keeper of the loops. `queues`: served even if they are not in the list of queues.

        `name`: name of the consumer of the relay in the storage.
        """
        ...

    def wake_ups(self) -> WakeUps | None:
        """Make a subscription to notifications for the loops. None = this storage sends none.

        Without notifications, the mover checks its queues every second.
        """
        ...

    def worker_registry(self) -> WorkerRegistry | None:
        """Make the access to the list of live workers. None = this storage keeps no such list."""
        ...

    def session(self, *, is_async: bool, routes: Routes) -> Any:
        """Make the session of a client that follows these routes. `is_async`: for AsyncDelayQ; otherwise for DelayQ.

        These protocols do not describe a session yet. DelayQ and AsyncDelayQ accept only the session of the Redis
        driver.
        """
        ...
