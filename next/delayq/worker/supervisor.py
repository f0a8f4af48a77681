"""The supervisor: a parent that runs no handler, forks children, keeps their leases and settles for the ended.

Its loop is a list of steps: reap, settle for the ended, fork what is missing, renew. A step that fails is logged by
name and does not stop the others.
"""

import logging
import os
import secrets
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from delayq.backends.protocol import LeaseKeeper
from delayq.worker import leases
from delayq.worker.fork import WATCHED, fork, reap, wait_for_signal
from delayq.worker.shared_memory import SlotTable

logger: Final = logging.getLogger("delayq.worker")

TICK: Final = 0.5
RESPAWN_PAUSE: Final = 0.5

ChildMain = Callable[[str, SlotTable], int]
"""Runs a child under a consumer name, with its slots, and returns the exit code."""


@dataclass
class ChildProcess:
    """A child, its consumer name and its slots. `process_id` is None while it is not running."""

    slots: SlotTable
    consumer: str
    process_id: int | None = None
    fork_at: float = 0.0
    is_settled: bool = True


@dataclass
class Supervisor:
    """Keeps `processes` children and one sidecar with the loops running, until a signal stops it."""

    keeper: LeaseKeeper
    child_main: ChildMain
    new_slots: Callable[[], SlotTable]
    lease: float
    processes: int
    sidecar_main: Callable[[], int] | None = None
    clock: Callable[[], float] = time.monotonic
    stopping: bool = False
    children: list[ChildProcess] = field(default_factory=list)
    _sidecar: int | None = None
    _renew_at: float = 0.0

    def run(self) -> int:
        """Work until SIGTERM or SIGINT, then let the children drain. Return the exit code."""
        signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
        self.children = [ChildProcess(self.new_slots(), consumer_name()) for _ in range(self.processes)]
        while True:
            for step in (self.reap, self.settle_for_ended, self.fork_missing, self.renew):
                try:
                    step()
                except Exception:
                    logger.exception("the step %s failed; it is tried again", step.__name__)
            if self.stopping and not any(child.process_id for child in self.children):
                break
            if wait_for_signal(min(TICK, self.lease / 3)) in (signal.SIGTERM, signal.SIGINT):
                self.stop()
        if self._sidecar is not None:
            os.kill(self._sidecar, signal.SIGTERM)
            os.waitpid(self._sidecar, 0)
        return 0

    def stop(self) -> None:
        """Tell the children to drain."""
        self.stopping = True
        for child in self.children:
            if child.process_id is not None:
                os.kill(child.process_id, signal.SIGTERM)

    def reap(self) -> None:
        """Note which processes have ended."""
        for process_id, code in reap():
            if process_id == self._sidecar:
                logger.warning("the mover and janitor ended with %d; they are started again", code)
                self._sidecar = None
            for child in self.children:
                if child.process_id == process_id:
                    child.process_id = None
                    child.is_settled = False
                    child.fork_at = self.clock() + (0.0 if code == 0 else RESPAWN_PAUSE)

    def settle_for_ended(self) -> None:
        """Settle what ended children held. What fails is tried again before the child is forked anew."""
        for child in self.children:
            if child.process_id is None and not child.is_settled:
                leases.settle_for_ended(self.keeper, child.consumer, child.slots)
                child.is_settled = True

    def fork_missing(self) -> None:
        """Fork the children and the sidecar that are not running."""
        if self.stopping:
            return
        if self._sidecar is None and self.sidecar_main is not None:
            self._sidecar = fork(self.sidecar_main)
        for child in self.children:
            if child.process_id is None and child.is_settled and self.clock() >= child.fork_at:
                child.slots.clear()
                child.consumer = consumer_name()
                child.process_id = fork(partial(self.child_main, child.consumer, child.slots))

    def renew(self) -> None:
        """Renew the leases of all children, every third of a lease."""
        now = self.clock()
        if now < self._renew_at:
            return
        self._renew_at = now + self.lease / 3
        for child in self.children:
            if child.process_id is not None:
                leases.renew(self.keeper, child.consumer, child.slots)


def consumer_name() -> str:
    """Make a consumer name. The form is part of the contract: another form marks a consumer that is not delayq's."""
    host = socket.gethostname().replace(":", "-")
    return f"dq:{host}:{os.getpid()}:{secrets.token_hex(4)}"
