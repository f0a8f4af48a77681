"""The child processes of a worker, as the supervisor sees them.

The supervisor keeps a fixed number of children running: it forks a replacement for each child that has ended, until
the child has run its share of `max_jobs` or the worker shuts down. If children die shortly after their start, the pause
before a replacement grows, because a broken application would otherwise load the machine with forks.
"""

import logging
import os
import secrets
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Final

from delayq.backends.values import EntryKey
from delayq.worker.forking import WAKE_SIGNAL, fork, send
from delayq.worker.shared_memory import SlotTable, Stop

logger: Final = logging.getLogger("delayq.worker")

FIRST_PAUSE: Final = 0.5
"""Shortest pause before a process that died unexpectedly is replaced, in seconds."""

LONGEST_PAUSE: Final = 30.0
"""Longest pause before a process that died unexpectedly is replaced, in seconds."""

EARLY_DEATH: Final = 5.0
"""A child dies early if it dies unexpectedly within this many seconds after its start, without a finished job. The
sidecar dies early if it ends within this time.
"""


class Pause:
    """The pause before a dead process is replaced. The pause doubles with each early death in a row."""

    def __init__(self) -> None:
        self._next = FIRST_PAUSE

    def after_death(self, *, is_early: bool) -> float:
        """Return the number of seconds until the replacement is forked."""
        self._next = min(2 * self._next, LONGEST_PAUSE) if is_early else FIRST_PAUSE
        return self._next


ChildMain = Callable[[str, SlotTable, int | None], int]
"""Runs a child and returns its exit code.

Its arguments are the consumer name, the slots, and the maximum number of jobs to run (None = any number).
"""


class Ending(StrEnum):
    """Why the supervisor killed a child."""

    TIMEOUT = "timeout"
    CANCEL = "cancel"
    FROZEN = "frozen"
    SHUTDOWN = "shutdown"


@dataclass
class ChildProcess:
    """One of the children of a worker. If its process ends, the replacement uses the same slots.

    `jobs_left`: how many jobs the child may still run; None = any number. `consumer`: its consumer name in the backend.
    `process_id`: None while no process runs. `fork_at`: earliest time of the next fork. `is_settled`: True if the jobs
    of the last process were settled. `end_by`: time at which a process with an overdue job is killed, even if its other
    jobs still run; None = not planned. `ending`: why the process was killed; None = it was not. `killed_for`: the
    overdue jobs that were the reason.
    """

    slots: SlotTable
    jobs_left: int | None = None
    consumer: str = ""
    process_id: int | None = None
    started_at: float = 0.0
    fork_at: float = 0.0
    pause: Pause = field(default_factory=Pause)
    is_settled: bool = True
    end_by: float | None = None
    ending: Ending | None = None
    killed_for: set[EntryKey] = field(default_factory=set)

    def kill(self, ending: Ending, killed_for: set[EntryKey]) -> None:
        """Kill the process group: the process, and the processes that its handlers started. The first call counts."""
        if self.process_id is not None and self.ending is None:
            self.ending = ending
            self.killed_for = killed_for
            send(self.process_id, signal.SIGKILL)

    def order(self, stop: Stop) -> None:
        """Give the process a stop order, and wake it."""
        self.slots.order_stop(stop)
        self.wake()

    def wake(self) -> None:
        """Send a signal to the process, so that a waiting child reads its orders."""
        if self.process_id is not None:
            send(self.process_id, WAKE_SIGNAL)

    @property
    def may_run(self) -> bool:
        """True if the child may still run a job."""
        return self.jobs_left is None or self.jobs_left > 0


class Children:
    """The children of a worker.

    `main`: runs a child. `new_slots`: makes the slots of a child. `processes`: the number of children. `max_jobs`: how
    many jobs all children together may run; None = any number. `host`: the host in consumer names; '' = this machine.
    """

    def __init__(
        self,
        main: ChildMain,
        new_slots: Callable[[], SlotTable],
        *,
        processes: int,
        max_jobs: int | None,
        host: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._main = main
        self._host = host
        self._clock = clock
        self.all = [ChildProcess(new_slots(), share) for share in _shares(max_jobs, processes)]

    def running(self) -> list[ChildProcess]:
        """List the children that have a process."""
        return [child for child in self.all if child.process_id is not None]

    def crashed(self) -> list[ChildProcess]:
        """List the children whose process has ended and whose replacement has not started."""
        return [child for child in self.all if child.process_id is None and child.consumer and child.may_run]

    def spawn(self) -> None:
        """Fork the missing children whose pause is over and whose last jobs were settled."""
        now = self._clock()
        for child in self.all:
            if child.process_id is None and child.is_settled and child.may_run and now >= child.fork_at:
                child.slots.clear()
                child.consumer = consumer_name(self._host)
                child.started_at = now
                child.end_by = child.ending = None
                child.killed_for = set()
                child.process_id = fork(
                    partial(self._main, child.consumer, child.slots, child.jobs_left), title="delayq-child"
                )

    def ended(self, process_id: int, code: int) -> bool:
        """Record that a process has ended. Return False if it was not a child."""
        for child in self.all:
            if child.process_id == process_id:
                self._note_end(child, process_id, code)
                return True
        return False

    def _note_end(self, child: ChildProcess, process_id: int, code: int) -> None:
        now = self._clock()
        finished = child.slots.finished()
        child.process_id = None
        child.is_settled = False
        if child.jobs_left is not None:
            child.jobs_left = max(child.jobs_left - finished, 0)
        is_orderly = code == 0 or child.ending is not None
        is_early = not (is_orderly or finished or now - child.started_at > EARLY_DEATH)
        pause = child.pause.after_death(is_early=is_early)
        child.fork_at = now if is_orderly else now + pause
        if code != 0:
            why = f"was killed ({child.ending})" if child.ending else f"ended with {as_text(code)}"
            logger.warning("child process %d %s", process_id, why)


def consumer_name(host: str = "") -> str:
    """Return a new consumer name. `host` replaces the name of this machine.

    Keep the form of the name. Consumers whose names have another form are treated as plain consumers (programs without
    delayq).
    """
    host = (host or socket.gethostname()).replace(":", "-")
    return f"dq:{host}:{os.getpid()}:{secrets.token_hex(4)}"


def as_text(code: int) -> str:
    """Return how a process ended, from its exit code: 'exit code 1' or 'signal SIGKILL'."""
    if code >= 0:
        return f"exit code {code}"
    names = {one.value: one.name for one in signal.Signals}  # most real-time signals have no name
    return f"signal {names.get(-code, -code)}"


def _shares(max_jobs: int | None, processes: int) -> list[int | None]:
    """Divide a number of jobs among children."""
    if max_jobs is None:
        return [None] * processes
    return [max_jobs // processes + (n < max_jobs % processes) for n in range(processes)]
