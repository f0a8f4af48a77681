"""A backend that hands out reservations itself: what a database, beanstalkd, SQS or Laravel's Redis queue can do.

`drivers/serving` makes of any `Broker` what producers (`Connection`) and workers (`Driver`, `Consumer`, `Steward`)
need, so a new backend is one module against this page:

    CAPABILITIES: Final = Capabilities(…)                           what it can do when nothing narrows it
    def backend(name: str, given: ConnectionSettings, options: Options) -> Backend
                                                                    checks the settings, opens nothing

and a row in `delayq/drivers/known.py`. `Backend` (serving/backend.py) holds the capabilities and a function that makes
a `Broker`; that is called once in each process that needs one, after the fork, so no connection is ever shared between
processes. What has to be shared (SQS: receipt handles, longer than an entry may be) belongs to the `Backend`, which is
made before the fork.

Decisions
---------
* **The envelope is the truth about attempts.** `Delivery.raw` is always an envelope of delayq, whatever the backend
  holds; its `attempts` are those made before this one. A try-again comes back as `Again`, with the envelope rewritten
  (attempts, exceptions) and the delay worked out already; the broker stores what it is given. Where a column or a
  payload of another system counts too (Laravel's `attempts`), the broker writes `Again.attempts` there, and reads the
  envelope's from there when it reserves.
* **Vanished workers are counted by the backend.** `Delivery.recoveries` is how often a reservation ended with nobody
  saying how (reserved before, minus attempts made). Uncounted where the backend cannot tell: 0. More than
  `max_recoveries` fail the job, in `serving/consumer.py`.
* **Entries are short.** A `Claim` lies in shared memory: its `entry` has at most 42 ASCII characters and names one
  reservation, never again another: row id and reservation time, say. Whoever settles with an old one is fenced.
* **Failures** go to a `FailedStore` first and leave the queue then (`Forget`); only a broker whose capabilities say
  `own_failed` gets a `Bury`, and does both in one step.
* **What follows** (next link of a chain) comes with the act that ends a job, as items to push. A broker with
  transactions does both in one; the others push first: a crash between sends it twice, never not at all.
* **Errors** are delayq's: `BackendUnavailable` when the call surely did nothing and may work later, `OutcomeUnknown`
  when its reply was lost, `BackendFull`, `ConfigError` with the next step for what will not mend itself (a missing
  table, a wrong password, an extra that is not installed). `failover` tries the next connection only where the first
  surely took nothing, so the difference matters.
* **Threads**: all methods may be called from several threads; a client that cannot bear it needs a lock. Only `wait`
  blocks. A signal may tear `wait`, `reserve` and `settle` with an exception (`BaseException`); what is half-read then
  belongs thrown away with its connection.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias, runtime_checkable

import msgspec

from delayq.core.control import Control
from delayq.core.debounce import Quiet
from delayq.core.followups import Note, Open
from delayq.core.limiting import Limits
from delayq.core.states import Answer, OnConflict, State
from delayq.core.views import JobRef
from delayq.drivers.base import Claim, Delivery, Promotion
from delayq.drivers.failed_store import FailedJob


class Item(NamedTuple):
    """A job to put into a queue. `delay_ms` counts from now, `due_ms` is the same as epoch ms; 0 ms means at once.

    `lock` is its unique key as `core.unique.word_of` gives it ('' = none, or one that is not to be taken), `quiet` how
    long a debounced job waits. Both only where the capabilities have `unique`.
    """

    id: str
    name: str
    queue: str
    envelope: bytes
    delay_ms: int
    due_ms: int
    lock: str = ""
    quiet: Quiet | None = None

    def created(self) -> JobRef:
        """The usual answer: it is there now."""
        state = State.SCHEDULED if self.delay_ms > 0 else State.READY
        return JobRef(self.id, self.queue, state, self.due_ms, Answer.CREATED, self.name)


class Forget(msgspec.Struct, frozen=True):
    """The job has ended: remove it, and push what follows. `raw` is the envelope as delivered, b'' where unknown.

    `told` is for batches: one that begins, what became of members. Only where the capabilities have `batches`.
    """

    claim: Claim
    raw: bytes
    then: tuple[Item, ...] = ()
    told: tuple[Open | Note, ...] = ()


class Again(msgspec.Struct, frozen=True):
    """Make it available again in `delay_ms`. b'' as `envelope`: as it is. `attempts`: made so far.

    An attempt that is not counted (a snooze) comes with the `attempts` from before it.
    """

    claim: Claim
    raw: bytes
    envelope: bytes
    delay_ms: int
    attempts: int


class Bury(msgspec.Struct, frozen=True):
    """The job has failed for good: keep it among the failed, and push what follows. Only with `own_failed`."""

    claim: Claim
    raw: bytes
    envelope: bytes
    failed: FailedJob
    then: tuple[Item, ...] = ()
    told: tuple[Open | Note, ...] = ()


Act: TypeAlias = Forget | Again | Bury


class Depth(NamedTuple):
    """How long a queue is. `oldest_ms`: since when (epoch ms) its oldest ready job could run; None = unknown, none.

    What the backend cannot tell is None.
    """

    ready: int
    delayed: int | None = None
    reserved: int | None = None
    oldest_ms: int | None = None


class Waiting(NamedTuple):
    """One job that nobody has reserved, ready or not yet due. `entry` names it for `remove`, as it stands now.

    `unreadable` says why `envelope` is none, where it holds what another system wrote; '' = it is one. `reserved`: a
    worker has it, which only `Shows` tells.
    """

    id: str
    queue: str
    entry: str
    envelope: bytes
    due_ms: int
    unreadable: str = ""
    reserved: bool = False


class WaitingPage(NamedTuple):
    """Some of them in an order that stays, and the cursor of the next page ('' at the end)."""

    jobs: tuple[Waiting, ...]
    cursor: str


class Broker(Protocol):
    """One process's way to the backend."""

    # -- producing

    def push(self, items: Sequence[Item], on_conflict: OnConflict) -> list[JobRef]:
        """Take jobs, all or none where the backend can; `Item.created()` is the usual answer for each.

        `on_conflict` is KEEP unless the capabilities have `ids` or `replace`. Where a part was taken and another
        refused, it raises `OutcomeUnknown` that says how many.
        """

    # -- working

    def ready(self, queues: Sequence[str]) -> None:
        """A worker is about to serve these queues: look that everything is there. Raises `ConfigError`."""

    def reserve(self, queue: str, count: int) -> list[Delivery]:
        """Reserve up to `count` jobs that are due, without waiting."""

    def wait(self, queues: Sequence[str], seconds: float) -> list[Delivery]:
        """Wait until one of the queues may have something, at most so long, and reserve one where that is one step.

        May return early and empty: then it is worth a look. One that can only be polled sleeps here, for its interval
        at most (`serving/polling.py`).
        """

    def settle(self, acts: Sequence[Act]) -> list[bool]:
        """End reservations; False for one that is not its claim's any more. Repeated after an error, for the same ones.

        The claims may be of another process, which is dead.
        """

    def give_back(self, claims: Sequence[Claim], *, vanished: bool) -> None:
        """Make available at once what was reserved; claims that are not ours any more are left alone.

        `vanished`: its process died while it ran, so that is counted. Else it had not started, and is not counted
        where the backend can do so. A holder's reservations (`Keeper.HOLDER`) end with its connection, so in another
        process there is nothing left to do.
        """

    def renew(self, claims: Sequence[Claim]) -> list[bool]:
        """Start the leases anew; False for one that is not its claim's any more. Never called for `Keeper.NOBODY`."""

    def envelope(self, claim: Claim) -> bytes:
        """The envelope of a reservation, also of another process's; b'' when it is gone or this backend cannot."""

    def dump(self, envelope: bytes) -> bytes:
        """What this backend holds for an envelope: the same bytes, or another system's payload. For failed jobs."""

    def load(self, payload: bytes) -> bytes:
        """The envelope of what `dump` made, to be pushed again. Raises `BadEnvelope`."""

    def lease_s(self, queue: str) -> float:
        """After how many seconds a reservation ends that nobody renews."""

    def now_ms(self) -> int:
        """The backend's time; this machine's where the backend has none. Cheap: it may be an estimate carried on."""

    # -- looking and removing

    def queues(self) -> list[str]:
        """The queues that are known to hold something."""

    def depth(self, queue: str) -> Depth:
        """How long a queue is. Only with `counts`."""

    def page(self, queue: str, *, cursor: str, count: int) -> WaitingPage:
        """Jobs that wait, page by page. Only with `inspect`."""

    def remove(self, jobs: Sequence[Waiting]) -> list[bool]:
        """Remove jobs that still wait as they were shown; False for one that was reserved, changed or removed since."""

    def clear(self, queue: str) -> int:
        """Remove everything that waits; how many. Only with `clear`."""

    def close(self) -> None:
        """Close what is open; the broker may be used again."""


@runtime_checkable
class Fits(Protocol):
    """A broker that can tell beforehand what it will not take, beyond what its capabilities say."""

    def fit(self, items: Sequence[Item]) -> None:
        """Raises what `push` would raise for what these jobs are: too large, a time or a name it cannot hold."""


@runtime_checkable
class Moves(Protocol):
    """A broker whose capabilities ask for a mover: workers run one beside them, and `delayq move` does."""

    def promote(self, queue: str) -> Promotion:
        """Move one bounded batch of what is due."""

    def reclaim(self, queue: str) -> int:
        """Take back one bounded batch of what nobody renewed; how many."""


@runtime_checkable
class Findable(Protocol):
    """A broker that can do something with a job it finds by its id. Answers are those of `core.states.ANSWERS`."""

    def find(self, queue: str, job_id: str) -> Waiting | None:
        """The job, if it waits."""

    def cancel(self, queue: str, job_id: str) -> Answer:
        """Remove it if it waits. With the capability `cancel`."""

    def reschedule(self, queue: str, job_id: str, due_ms: int) -> Answer:
        """Give it another time if it waits; a time that has passed is now. With `reschedule` and `run_now`."""


@runtime_checkable
class Shows(Protocol):
    """A broker with the capability `wait`."""

    def show(self, queue: str, job_id: str) -> Waiting | None:
        """The job, whether it waits or runs; None when it has ended, or was never there."""


@runtime_checkable
class Buries(Protocol):
    """A broker that lays aside what it cannot read, until somebody gives it back."""

    def buried(self, queue: str) -> int:
        """How much lies aside."""

    def all_buried(self) -> Mapping[str, int]:
        """How much lies aside, of each queue where anything does."""

    def kick(self, queue: str, count: int) -> int:
        """Give back up to `count`, the oldest first; how many."""


@runtime_checkable
class Asked(Protocol):
    """A broker that answers what jobs ask before they start; others answer everything with a refusal."""

    def limits(self, connection: str) -> Limits:
        """Who answers. `connection` names it for people."""


@runtime_checkable
class Switched(Protocol):
    """A broker with the capability `pause`."""

    def control(self, queues: Sequence[str]) -> Control:
        """What holds for all workers, and which of these queues are paused."""
