"""What loops and workers need of a backend. They know these protocols and no driver.

A `Driver` serves the loops (promote, tidy, …); a `Consumer` is one worker's way to deliveries. Both
raise `BackendError` when the backend fails, and neither decides anything about jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import msgspec

from delayq.core.control import Heed, News, WorkerOrder, obey
from delayq.core.errors import DelayqError
from delayq.core.limiting import Limits
from delayq.core.order import Order, strict
from delayq.core.outcome import Outcome
from delayq.core.progress import Told


class Delivery(msgspec.Struct, frozen=True, gc=False):
    """One reservation of one envelope. `entry` is its lease and its fencing token; `raw` the envelope's bytes.

    `stop`: somebody asked it to stop while another held it, so it is not to be started. `unreadable`: why there is no
    envelope, said by a driver that found something else there; `raw` is that.
    """

    queue: str
    id: str
    entry: str
    raw: bytes
    due_ms: int
    recoveries: int
    stop: bool = False
    unreadable: str = ""


class Claim(NamedTuple):
    """What is left of a delivery in the hands of somebody who only looks after it."""

    queue: str
    id: str
    entry: str


class Settlement(msgspec.Struct, frozen=True):
    """A delivery and what shall become of it. `resent`: an earlier try to settle it may have worked unseen."""

    delivery: Delivery
    outcome: Outcome
    resent: bool = False


@dataclass(frozen=True, slots=True)
class Fetched:
    """What one exchange brought, as far as it worked.

    `settled` has one answer for each settlement: True = settled, False = fenced (the job is somebody else's by now),
    None = not settled yet. `errors` are those of single queues, which kept the others from nothing. `garbage` counts
    what was read and is no delivery. `more`: the backend holds more for this consumer than one answer may bring.
    `later` stands for `settled` while the backend still settles: it waits for that. Any thread may call it; one has to.
    """

    settled: Sequence[bool | None] = ()
    deliveries: Sequence[Delivery] = ()
    errors: Sequence[DelayqError] = ()
    garbage: int = 0
    more: bool = False
    later: Callable[[], Fetched] | None = None


@dataclass(frozen=True, slots=True)
class Renewal:
    """`surplus`: the backend holds more for this consumer than it named, so a reply was lost. `errors`: of single
    queues; they kept the others from nothing."""

    lost: frozenset[tuple[str, str]]
    asked_to_stop: frozenset[tuple[str, str]]
    surplus: bool
    errors: Sequence[DelayqError] = ()


class Promotion(NamedTuple):
    """Jobs moved, and the seconds until the next one is due (0 = at once, None = nothing waits).

    `owed`: follow-ups that wait to be carried to other places.
    """

    moved: int
    lost: int
    next_s: float | None
    owed: int = 0


@dataclass(frozen=True, slots=True)
class Tidied:
    """What a janitor's tick found and did in one queue. All zero is the normal case.

    `unhealed`: 1 when damage was found that could not be healed. `regrouped`: 1 when the stream or its group was gone
    and was made anew.
    """

    reclaimed: int = 0
    failed: int = 0
    closed: int = 0
    redelivered: int = 0
    buried: int = 0
    mended: int = 0
    unhealed: int = 0
    pruned: int = 0
    retired: int = 0
    hold_ms: int = 0
    regrouped: int = 0

    @property
    def quiet(self) -> bool:
        """Whether nothing was found that a person should hear of."""
        found = self.reclaimed or self.failed or self.redelivered or self.buried or self.mended or self.unhealed
        return not (found or self.regrouped)


class Relayed(NamedTuple):
    """Follow-ups carried, and those that stay: whose time has not come, or which nobody can carry.

    `waiting`: a job whose unique key another one owns. `trouble`: what a person should hear of, one line each.
    """

    carried: int = 0
    waiting: int = 0
    trouble: tuple[str, ...] = ()


class Measures(NamedTuple):
    """What a worker's children measured on one queue since the last time.

    `queue`: by the names of `core/activity.py`. `job_types`: for each job name, by the names of `core/job_types.py`.
    """

    queue: Mapping[str, float]
    job_types: Mapping[str, Mapping[str, float]]


class WakeUps(Protocol):
    """Hints that a queue's head moved earlier. Hints may be lost; nobody depends on one."""

    @property
    def listening(self) -> bool:
        """Whether hints come in just now, as far as it can tell."""

    def wait(self, seconds: float) -> frozenset[str] | None:
        """Wait until a hint comes or the time is over; the queues named (empty = the time is over).

        None: the listener hears only since now, so hints may have been missed and every queue is worth a look.
        """

    def close(self) -> None:
        """Stop listening."""


class Driver(Protocol):
    """The loops' side of a backend."""

    def queues(self) -> list[str]:
        """All queues known."""

    def register(self, queues: Sequence[str]) -> None:
        """Make queues known (again)."""

    def relist(self) -> bool:
        """Make queues known again that hold jobs and are not known: one bounded step of a search through all keys.

        Whether the search is at its end; the next call then begins a new one.
        """

    def promote(self, queue: str) -> Promotion:
        """Move one batch of due jobs."""

    def relay(self, queue: str) -> Relayed:
        """Carry what follows jobs of this queue to other queues and to batches."""

    def reclaim(self, queue: str) -> Tidied:
        """Take back what vanished workers hold."""

    def tidy(self, queue: str) -> Tidied:
        """Look for damage and heal it; forget what was kept long enough."""

    def lease_s(self, queue: str) -> float:
        """The queue's lease in seconds."""

    def wake_ups(self) -> WakeUps:
        """A listener of its own."""

    def consumer(
        self, name: str, queues: Sequence[str], heed: Heed = obey, order: Order = strict, news: News | None = None
    ) -> Consumer:
        """A worker's way to the deliveries of these queues; `order` is asked before each read which goes first.

        `heed` is told what holds for all workers, and decides whether to fetch: about twice a second while jobs come,
        and before a wait when `news` says so (the steward's `changes`); without `news` as often as it takes.
        """

    def steward(self, queues: Sequence[str]) -> Steward:
        """Looks after the deliveries of consumers that live in other processes. Sends nothing yet."""

    def close(self) -> None:
        """Close the connections made here."""


class Consumer(Protocol):
    """One worker's way to deliveries.

    `fetch`, `wait` and `replay` belong to one thread, the others may be called from any. They raise when the backend
    cannot be talked to; trouble with one queue is told in `Fetched.errors` instead.
    """

    name: str
    replays: bool
    """Whether `replay` knows what this consumer holds, and renewing a claim in its name gives it to this consumer."""

    @property
    def limits(self) -> Limits:
        """What jobs ask before they start."""

    def fetch(self, settlements: Sequence[Settlement], count: int) -> Fetched:
        """Settle, and read up to `count` deliveries without waiting, in one round trip."""

    def wait(self, seconds: float) -> Fetched:
        """Wait for the first delivery of any queue; nothing when the time is over, or sooner."""

    def replay(self) -> Fetched:
        """All deliveries the backend holds for this consumer."""

    def settle(self, settlements: Sequence[Settlement]) -> Fetched:
        """Settle without reading."""

    def hand_back(self, deliveries: Sequence[Delivery]) -> None:
        """Give back what was not started; it costs no attempt. What was asked to stop will not start elsewhere either.

        May be repeated after an error, for the same ones.
        """

    def renew(self, deliveries: Sequence[Delivery]) -> Renewal:
        """Start the leases anew. Raises only when it has tried every queue."""

    def tell(self, told: Sequence[tuple[Delivery, Told]]) -> None:
        """Write what running jobs tell of themselves; nothing of one that was taken back."""

    def lease_s(self) -> float:
        """The shortest lease of the queues served, in seconds."""

    def announce(self, about: Mapping[str, Any], ttl_s: float) -> None:
        """Say "I am here" for `ttl_s` seconds, with the queues served and what else is known of the worker."""

    def now_ms(self) -> int:
        """The server's time, as last seen and carried on by a monotonic clock."""

    def close(self) -> None:
        """Leave the group if nothing is held, and close the connections."""


class Steward(Protocol):
    """Keeps what other processes hold, and clears up after one that is dead. Belongs to one thread.

    Everything may be called twice: what is settled, handed back or taken back already is left alone.
    """

    def renew(self, consumer: str, claims: Sequence[Claim]) -> Renewal:
        """Start the leases anew, in the consumer's name. Raises only when the backend is away."""

    def listen(self) -> None:
        """Begin to hear of jobs that somebody asks to stop; again and again is as good as once. Never raises."""

    def heard(self) -> frozenset[tuple[str, str]]:
        """(queue, id) of jobs that somebody asked to stop since the last call, or some of them: what `renew` answers
        is what counts. Never waits and never raises."""

    def changes(self) -> int:
        """Counts how often switches were seen otherwise than before; 0 where every consumer looks itself."""

    def order(self, worker: str) -> WorkerOrder:
        """Return the last order an operator gave this worker; RESUME on a backend without worker orders."""

    def asked_to_stop(self, claim: Claim) -> bool:
        """Whether somebody asked this job to stop."""

    def settle(self, ended: Sequence[tuple[Claim, Outcome]]) -> list[bool]:
        """Settle what a dead process had finished; True for each that was still its own."""

    def hand_back(self, claims: Sequence[Claim]) -> None:
        """Give back what a dead process had not started, or what was taken from it; it costs nothing."""

    def recover(self, claims: Sequence[Claim]) -> int:
        """Take back what a dead process was running; one recovery each. How many failed by that."""

    def envelope(self, claim: Claim) -> bytes:
        """The envelope of a job; b'' when it is gone."""

    def pending(self, consumer: str) -> list[Claim]:
        """Everything the backend holds for a consumer that is dead."""

    def retire(self, consumer: str) -> None:
        """Take a consumer that holds nothing off all lists."""

    def announce(self, consumer: str, about: Mapping[str, Any], ttl_s: float) -> None:
        """Say "it is here" for `ttl_s` seconds."""

    def tally(self, measured: Mapping[str, Measures]) -> frozenset[str]:
        """Count what was measured on each queue. Returns the queues of which it was not counted.

        Raises when nothing was, and `OutcomeUnknown` when that is not known. A backend that keeps no such counts drops
        them.
        """

    def leases_ms(self) -> Mapping[str, int]:
        """Return the lease that each queue keeps, by queue, as last read; empty where queues keep none."""

    def lease_s(self) -> float:
        """The shortest lease of the queues served, in seconds."""

    def now_ms(self) -> int:
        """The server's time, as last seen and carried on by a monotonic clock; 0 when it was never seen."""
