"""What running jobs ask before they start, as values; whoever can answer is `Limits`.

    Acquire, Vacate, LineUp     one of so many places at a time
    Admit                       so many starts in a time
    Probe, Report               a circuit that opens after failures
    Unlock                      the job's own unique key, which its start frees
    CalledOff                   whether the batch was cancelled that the job is a member of

All but the last two name the limit and, within it, the key. `Who` is the delivery that asks: its entry id never comes
back, so what it holds is free as soon as its job has another entry, or none.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, NamedTuple, Protocol, TypeVar

from delayq.core.rate_limit import RateLimit

T = TypeVar("T")


class Who(NamedTuple):
    """A delivery."""

    queue: str
    id: str
    entry: str

    @property
    def job(self) -> str:
        """As waiting lists name it."""
        return f"{self.queue} {self.id}"

    @property
    def holder(self) -> str:
        """As holders are named. None of the three parts has a blank in it."""
        return f"{self.queue} {self.id} {self.entry}"


class Place(NamedTuple):
    """One of `limit` places of a key. Who holds it for `expire_ms` has lost it; 0 = never."""

    name: str
    key: str
    limit: int
    expire_ms: int = 0


@dataclass(frozen=True, slots=True)
class Question(Generic[T]):
    """Something that `Limits` answers with a T."""

    who: Who


class Taken(NamedTuple):
    """Whether the place was given; if not, how many jobs wait for one."""

    taken: bool
    waiting: int


@dataclass(frozen=True, slots=True)
class Acquire(Question[Taken]):
    """A place, before the handler runs."""

    place: Place


@dataclass(frozen=True, slots=True)
class Vacate(Question[bool]):
    """Give it back, and let the next one run. Whether it was still held."""

    place: Place


@dataclass(frozen=True, slots=True)
class LineUp(Question[bool]):
    """Wait for a place, after the job was put back. True: there was one by now, so it was run at once."""

    place: Place


class Admitted(NamedTuple):
    """Whether a start was counted; if not, after how many ms to ask again."""

    passed: bool
    wait_ms: int


@dataclass(frozen=True, slots=True)
class Admit(Question[Admitted]):
    """A start, against all `rates` or none. `line`: when it must wait, a turn is kept for it."""

    name: str
    rates: tuple[RateLimit, ...]
    line: bool = True


class Circuit(StrEnum):
    """How a circuit stands, for the one who asks."""

    CLOSED = "closed"
    OPEN = "open"
    PROBE = "probe"
    PROBING = "probing"


class Probed(NamedTuple):
    """`wait_ms` counts while it is open, `failures` while it is closed. PROBE: you try whether it works again."""

    circuit: Circuit
    failures: int = 0
    wait_ms: int = 0


@dataclass(frozen=True, slots=True)
class Probe(Question[Probed]):
    """May the handler be called?"""

    name: str
    key: str


class Verdict(StrEnum):
    """How a call went, as far as its circuit is concerned."""

    FAILED = "failed"
    PASSED = "passed"
    NEITHER = "neither"


@dataclass(frozen=True, slots=True)
class Report(Question[bool]):
    """How the call went: `most` failures within `decay_ms` open the circuit. Whether it is open now."""

    name: str
    key: str
    verdict: Verdict
    most: int
    decay_ms: int


class Unlocked(StrEnum):
    """Whether a unique key was freed: now, or it was not this job's, or the job is not this delivery's any more."""

    FREED = "freed"
    FREE = "free"
    FENCED = "fenced"


@dataclass(frozen=True, slots=True)
class Unlock(Question[Unlocked]):
    """Free the key, because the handler is about to be called."""

    digest: str


@dataclass(frozen=True, slots=True)
class CalledOff(Question[bool]):
    """Whether the batch was cancelled, because a member of it is about to start.

    `spared`: so many cancels do not hold for it.
    """

    batch: str
    spared: int = 0


class Limits(Protocol):
    """Answers questions, blocking or awaited. Both raise `DelayqError` when nobody can be asked."""

    def ask(self, question: Question[T], /) -> T:
        """From any thread."""

    async def aask(self, question: Question[T], /) -> T:
        """From any event loop."""
