"""The protocols between a worker and the storage of its jobs.

Read this module and `values.py` first if you write a driver: the code that connects delayq to one kind of storage.
`registry.py` explains how the settings name a driver, and how the driver gets its settings. A driver provides one
class, `Backend`. A worker asks its backend for three objects, one for each kind of process:

    Consumer       for a child, which runs jobs: fetches jobs and settles them
    LeaseKeeper    for the supervisor, the parent process: renews leases, and settles the jobs of dead children
    QueueKeeper    for the loops (mover, janitor and relay): makes due jobs ready, repairs queues, sends follow-up jobs

Two further objects are optional: WakeUps (notifications for the loops) and WorkerRegistry (the list of live workers).

Leases: a lease is the time for which a delivery belongs to its consumer. It starts with the delivery. The supervisor
renews the leases of all deliveries of a child every third of the shortest lease. A child itself renews its leases only
by calling `pending`. If a lease is not renewed in time, the job is delivered again.

Errors: if a backend does not answer, its methods raise BackendUnavailable, or OutcomeUnknown if a change may have taken
effect. If a call fails for one queue only, a Consumer or LeaseKeeper logs the error and does not use this queue for a
second; a QueueKeeper raises CallRefused. Other queues are not affected.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeVar

from delayq.backends.values import (
    Delivery,
    DeliveryRef,
    Promoted,
    Reclaimed,
    Relayed,
    Renewed,
    Repaired,
    Settlement,
    Switches,
)
from delayq.core.errors import BackendError
from delayq.core.queue_order import Order, strict
from delayq.settings.connections import Routes

TripT = TypeVar("TripT")


class Consumer(Protocol[TripT]):
    """The storage as one child sees it: one named consumer.

    A trip is one round trip to the storage. `begin` starts a trip and `complete` ends it, so that the child can run
    jobs while the reply is on its way.

    The consumer itself leaves out paused queues. It reads the switches again with each trip that requests jobs and with
    each wait. While a queue is paused, a wait should end after about 2 s, so that a resume soon takes effect.

    Threads: `begin`, `complete` and `hand_back` are called by the main thread of the child and, while a slow handler
    runs, by the watchdog thread. Only the watchdog thread calls `store_progress`. A lock of the child prevents
    both threads from completing the same trip. All other calls of the two threads may overlap. Any thread may call
    `now_ms`. The thread that runs a job calls `unlock`. Only the main thread calls the other methods.
    """

    def open(self) -> float:
        """Create missing parts of the queues, and return the shortest lease, in seconds. This is the first call."""
        ...

    def now_ms(self) -> int:
        """Return the time of the backend in epoch ms, without a request to the storage."""
        ...

    def begin(self, settled: Sequence[Settlement], limit: int) -> TripT:
        """Send settlements and a request for up to `limit` new jobs. Return a trip without waiting for the reply.

        The storage carries out the settlements before the request for jobs. If `limit` is 0, request no jobs. A storage
        without a connection to a server may do all work here.
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
        """Wait up to `timeout` seconds for new jobs. Return some of them, or [] if none came. A signal ends the wait.

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

    def unlock(self, job: DeliveryRef, digest: str) -> bool:
        """Free the unique key of a job that is about to start, if the job owns the key.

        The thread of the job calls this method. `digest`: the digest of the key, see `core/unique.py`. Return False if
        the delivery no longer belongs to this consumer. The key then stays taken, and this consumer must not start the
        job. A storage without unique keys returns True.
        """
        ...

    def store_progress(self, progress: Sequence[tuple[DeliveryRef, bytes]]) -> None:
        """Store the progress reports of running jobs. Each report is a JSON object. A refused report may be dropped."""
        ...

    def switches(self) -> Switches:
        """Return the switches, as they were last read.

        The child uses the time of the restart request and, if QueuePaused or QueueResumed has listeners, the pauses.
        """
        ...

    def has_unread(self) -> bool:
        """Return True if a queue could not be read. It is then unknown whether the queue has ready jobs.

        The child calls this method after a wait without jobs. If the answer is True, a worker with `--stop-when-empty`
        exits with code 1.
        """
        ...

    def has_follow_ups(self) -> bool:
        """Return True if a job of the queues ended a short time ago, and its follow-up jobs are still to be sent.

        A child of a worker with `--stop-when-empty` calls this method before each wait. Ignore jobs that ended longer
        ago (in the Redis driver, 15 s), so that the worker can end. A storage without a relay always returns False.
        """
        ...


class LeaseKeeper(Protocol):
    """The storage as the supervisor sees it. Only the main thread of the supervisor calls it.

    While a call waits, the supervisor cannot enforce timeouts. So a call must raise BackendUnavailable, or
    OutcomeUnknown, after one or two seconds without an answer.
    """

    def open(self) -> float:
        """Create missing parts of the queues, and return the shortest lease, in seconds. This is the first call."""
        ...

    def queues(self) -> list[str]:
        """Return the names that deliveries have as `queue`. The worker calls this once, after `open`.

        These are the names of the queues of the worker. If the storage divides a queue, they are the names of its
        parts, such as `orders` and `orders#1`; see `core/shards.py`. The worker passes them to `Backend.consumer`.
        """
        ...

    def now_ms(self) -> int:
        """Return the time of the backend in epoch ms, without a request to the storage."""
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
        """Return, without waiting, queue and id of each job that a cancel has asked to stop since the last call.

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
        has too many recoveries. Returns the `vanished` jobs that failed. The supervisor has not
        read the envelopes of the `done` jobs, so look for a follow-up job of each of them. If the answer to a
        settlement of `decided` is STOP_ASKED, the keeper itself settles the job as Stopped. One call may handle only a
        part of the jobs.

        The supervisor repeats `pending` and this method until no job of the child is pending, or until a call changes
        nothing. After an error, the supervisor tries again on its next turn.
        """
        ...


class QueueKeeper(Protocol):
    """The storage as the mover, the janitor and the relay see it. One thread calls it.

    If a call fails for one queue only, the method raises CallRefused. There is no `open`, so each method must also
    work in an empty storage.
    """

    def queues(self) -> list[str]:
        """List the names of the queues to serve."""
        ...

    @property
    def has_all_queues(self) -> bool:
        """False if the storage refused or did not answer the last read of `queues`. Queues may then be missing."""
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

    def follow_up(self, queue: str) -> Relayed:
        """Send the follow-up jobs of ended jobs."""
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
        """Wait until a notification arrives, at most `seconds`. Return the queue and a time for each notification.

        The loops use only the queue. The time is the new due time in epoch ms, as digits; for a record, it may be 0. If
        the storage cannot be reached, sleep and return an empty list.
        """
        ...


class WorkerRegistry(Protocol):
    """The list of live workers, for operators. A worker need not be on the list to work."""

    def announce(self, documents: Mapping[str, Mapping[str, Any]], now_ms: int) -> None:
        """Store the description of each child. A description expires unless it is stored again.

        `documents`: the descriptions by name of the child. `now_ms`: the time of the backend.
        """
        ...

    def leave(self, names: Sequence[str], now_ms: int) -> None:
        """Remove the named children from the list, and also all other children whose descriptions have expired.

        `now_ms`: the time of the backend.
        """
        ...


class Backend(Protocol):
    """The factory of one driver: it makes the objects that use one storage of jobs.

    A Backend is made in the parent process and holds no connection, so that processes can be forked. Each returned
    object has its own connection. The connection is opened in the process that called the method, at the latest with
    the first call of the object.

    The parent also forks while it uses its lease keeper and its worker registry. The forked processes inherit these two
    objects, and neither use nor close them. If a storage does not allow open connections to be inherited by a fork
    (SQLite does not), the two objects must close their connections after each call.
    """

    where: str
    """The address of the storage, without secrets, for messages."""

    has_loops: bool
    """True if the storage needs a mover, a janitor and a relay.

    If False, a worker never calls `queue_keeper`. The storage or its consumers must then do the work of the methods of
    QueueKeeper, for example make due jobs ready. `delayq move` runs the loops in any case.
    """

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

        `queues`: the names from `LeaseKeeper.queues`. `name`: name of the consumer in the storage; no two children ever
        have the same name. `order`: sorts the queues by their priority, before each read. `forced`: ignore maintenance,
        but no other pause. `wake_fd`: a descriptor that becomes readable when a signal arrives; the consumer must then
        end a blocked read.
        """
        ...

    def lease_keeper(self, queues: Sequence[str]) -> LeaseKeeper:
        """Make the lease keeper of a supervisor. `queues`: the queues of the worker."""
        ...

    def queue_keeper(self, queues: Sequence[str], *, name: str) -> QueueKeeper:
        """Make the queue keeper of the loops.

        The loops serve all queues in the list of queues, and also `queues`, even if they are not in the list.

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

        These protocols do not describe a session, because DelayQ and AsyncDelayQ build calls of Redis and accept only
        the session of the Redis driver. So another driver can serve workers, but its jobs need a client of their own.
        """
        ...
