"""The children of a supervisor: made, made again when they die, and waited for.

One that dies soon after its birth and has not even begun a job is replaced after a pause that doubles, so that a
program that cannot start does not keep the machine busy with forks. One that a job has killed is replaced at once:
that job has a limit of its own.
"""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from delayq.drivers.base import Claim
from delayq.worker.child import Child
from delayq.worker.fork import Process, fork
from delayq.worker.meter import Meter
from delayq.worker.names import consumer_name, label_of, new_token
from delayq.worker.plan import Plan
from delayq.worker.slots import FINISHED, RUNNING, SPILLED, Hold, Slots, Stop, Word

log = logging.getLogger("delayq.supervisor")

SOON_S = 10.0
FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 5.0
MOST_ACCUSED = 1_000


class Killed(StrEnum):
    """Why the supervisor itself ended a child."""

    OVERTIME = "a job did not end in time"
    FROZEN = "it is stopped, and its job is over its time"
    CANCEL = "a cancelled job did not end"
    STOP = "the worker stops"


@dataclass(slots=True, eq=False)
class Member:
    """One child as its supervisor knows it. `share`: jobs it may start, 0 = no limit.

    `cell_of`: it is a cell, a process for one job that the child of that number was given; None for all others.

    `end_by`: when it is ended, in monotonic seconds, and why, because of a job that does not end.
    """

    number: int
    process: Process
    name: str
    slots: Slots
    share: int
    killed: Killed | None = None
    end_by: float | None = None
    end_why: Killed = Killed.OVERTIME
    warned: dict[int, int] = field(default_factory=dict)
    cell_of: int | None = None

    @property
    def done(self) -> int:
        """Attempts ended here, settled or not."""
        phases = bytes(self.slots.phases)
        return self.slots.ints[Word.DONE] + phases.count(FINISHED) + phases.count(SPILLED)

    @property
    def begun(self) -> bool:
        """Whether it has run a job, or tried to."""
        return self.done > 0 or self.running

    @property
    def running(self) -> bool:
        """Whether it runs a job."""
        return bytes(self.slots.phases).find(RUNNING) >= 0

    @property
    def ended_itself(self) -> bool:
        """Whether it said that it leaves."""
        return self.slots.ints[Word.ENDED] == 1

    def kill(self, why: Killed) -> None:
        """End it at once."""
        if self.killed is None:
            log.warning("child %d (process %d) is killed: %s", self.number, self.process.pid, why)
            self.killed = why
            self.process.kill()

    def tell(self, stop: Stop) -> None:
        """DRAIN is the last word."""
        if self.slots.ints[Word.STOP] != Stop.DRAIN:
            self.slots.ints[Word.STOP] = stop


class Brood:
    """Keeps `plan.options.processes` children alive; `meters` by their numbers, those of cells after the others."""

    def __init__(self, plan: Plan, prepare: Callable[[Slots], None], meters: Mapping[int, Meter]) -> None:
        self.members: dict[int, Member] = {}
        self.done_before = 0
        self._plan = plan
        self._prepare = prepare
        self._meters = meters
        self._due = dict.fromkeys(range(1, plan.options.processes + 1), 0.0)
        self._shares = _shares(plan)
        self._failures: dict[int, int] = {}
        self._put_off: set[int] = set()
        self._accused: deque[tuple[str, str]] = deque(maxlen=MOST_ACCUSED)

    @property
    def done(self) -> int:
        """Attempts ended in all children, past and present."""
        return self.done_before + sum(member.done for member in self.members.values())

    @property
    def over_memory(self) -> bool:
        """Whether a child has more memory in use than it may."""
        return any(member.slots.ints[Word.OVER_MEMORY] for member in self.members.values())

    @property
    def called_to_restart(self) -> bool:
        """Whether a child has heard the call."""
        return any(member.slots.ints[Word.RESTART] for member in self.members.values())

    @property
    def idle_since(self) -> float | None:
        """When the last of the children to do so began to ask in vain; None when one has something to do."""
        asked = [member.slots.floats[Word.EMPTY_AT] for member in self.members.values()]
        return min(asked) if asked and all(asked) else None

    @property
    def held(self) -> bool:
        """Whether something keeps a child from asking: a pause of everything, maintenance, a closed gate."""
        return any(member.slots.ints[Word.HOLD] != Hold.NO for member in self.members.values())

    @property
    def used_up(self) -> bool:
        """Whether no child runs and none is to be made again."""
        return not self.members and not self._due

    def spawn_due(self, others: list[Process], word: Stop) -> None:
        """Make the children whose time has come."""
        for number, at in list(self._due.items()):
            if time.monotonic() >= at:
                del self._due[number]
                try:
                    self._spawn(number, others, word)
                except OSError as error:
                    log.error("child %d cannot be made: %s; tried again in %g s", number, error, LONGEST_PAUSE_S)
                    self._due[number] = time.monotonic() + LONGEST_PAUSE_S

    def accuse(self, claims: Iterable[Claim]) -> None:
        """One of these jobs ended its process by itself: children made from now on start each of them alone."""
        self._accused.extend((claim.queue, claim.id) for claim in claims)

    def cells(self) -> list[Member]:
        """The cells that live, or whose death was not seen yet."""
        return [member for member in self.members.values() if member.cell_of is not None]

    def spawn_cell(self, cell_of: int, others: list[Process]) -> Member:
        """Make a cell; the caller sees to it that there are no more than `plan.cells`. Raises `OSError`."""
        used = {member.number for member in self.cells()}
        first = self._plan.options.processes + 1
        number = next(n for n in range(first, first + self._plan.cells) if n not in used)
        return self._spawn(number, others, Stop.NO, cell_of)

    def reap(self) -> list[Member]:
        """Children that have died; each is named once, and planned anew unless it has done its share."""
        dead = []
        for member in list(self.members.values()):
            if member.process.has_ended():
                del self.members[member.process.pid]
                status = member.process.wait()
                self.done_before += member.done
                self._plan_anew(member, status)
                dead.append(member)
        return dead

    def stop_respawning(self) -> None:
        """Who ends now is not replaced."""
        self._due.clear()
        self._shares = dict.fromkeys(self._shares, -1)

    def _spawn(self, number: int, others: list[Process], word: Stop, cell_of: int | None = None) -> Member:
        plan, share = self._plan, self._shares.get(number, 1)
        if share > 0 and cell_of is None:
            share -= self._promised(number)
        slots = Slots(plan.options.queues, plan.slots)
        slots.ints[Word.STOP] = word
        self._prepare(slots)
        accused = frozenset(self._accused)
        label, token, meter = label_of(plan.options.name), new_token(), self._meters[number]

        def run(pipe: int) -> None:
            name = consumer_name(label, token=token)
            Child(plan, slots, name, pipe, meter, cell=cell_of is not None, accused=accused).run(share)

        process = fork(run, [*others, *(member.process for member in self.members.values())])
        name = consumer_name(label, pid=process.pid, token=token)
        member = self.members[process.pid] = Member(number, process, name, slots, share, cell_of=cell_of)
        return member

    def _plan_anew(self, member: Member, status: int) -> None:
        number, lived_s = member.number, time.monotonic() - member.process.born
        asked = number if member.cell_of is None else member.cell_of
        share = self._shares[asked]
        if share > 0:
            self._shares[asked] = share = share - self._started(member) or -1
        if member.cell_of is not None:
            if member.killed is None and not member.ended_itself:
                log.error("child %d (process %d), which ran one recovered job, died: %s", number, member.process.pid,
                          _how(status))  # fmt: skip
            if asked in self._put_off and share > self._promised(asked):
                self._put_off.discard(asked)
                self._due[asked] = time.monotonic()
            return
        if share < 0 or (self._plan.options.once and member.ended_itself):
            return
        if 0 < share <= self._promised(number):
            self._put_off.add(number)  # until those cells have ended, and their jobs with them
            return
        unwanted = member.killed is None and not member.ended_itself
        fruitless = unwanted and lived_s < SOON_S and not member.begun
        failures = self._failures.get(number, 0) + 1 if fruitless else 0
        self._failures[number] = failures
        pause_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** (min(failures, 10) - 1)) if failures else 0.0
        self._due[number] = time.monotonic() + pause_s
        if unwanted:
            log.error(
                "child %d (process %d) died: %s; another one starts in %.2f s",
                number,
                member.process.pid,
                _how(status),
                pause_s,
            )

    def _promised(self, number: int) -> int:
        """Jobs of this child's share that run in cells."""
        return sum(cell.cell_of == number for cell in self.cells())

    def _started(self, member: Member) -> int:
        """Jobs that count towards its share: those that ended. What is handed back is started elsewhere."""
        return member.done


def _shares(plan: Plan) -> dict[int, int]:
    """How many jobs each child may start; 0 = no limit, -1 = none at all."""
    options = plan.options
    numbers = range(1, options.processes + 1)
    most = 1 if options.once else options.max_jobs
    if not most:
        return dict.fromkeys(numbers, 0)
    each, rest = divmod(most, options.processes)
    return {number: (each + (number <= rest)) or -1 for number in numbers}


def _how(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f"by signal {os.WTERMSIG(status)}"
    return f"with exit code {os.waitstatus_to_exitcode(status)}"
