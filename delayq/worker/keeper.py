"""The keeper: a thread that renews leases and sees to it that a slow job makes nobody wait.

Three duties, by time: renew everything held every third of a lease; announce the worker; and when
a job has run for longer than the prefetch is worth, settle what is finished and hand back what has
not started, so that another worker may take it.

A handler that holds the interpreter's lock stops this thread too. Then the lease runs out, the job
is taken back, and its late end is fenced. (A supervisor process outside the interpreter ends that.)
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from delayq.core.errors import BackendError
from delayq.drivers.base import Consumer
from delayq.loops.log_limit import LogLimit
from delayq.worker.held import Held, boot_clock
from delayq.worker.prefetch import WORTH_S

log = logging.getLogger("delayq.keeper")

LOOK_S = 0.010
RETRY_S = 0.2
ANNOUNCE_S = 5.0
ANNOUNCE_TTL_S = 20.0


class Keeper:
    """Keeps `held` for `consumer`. `fenced` is told of settlements that came too late."""

    def __init__(self, consumer: Consumer, held: Held, about: Mapping[str, Any], settle: Callable[[], None]) -> None:
        self.replay_wanted = False
        self._consumer = consumer
        self._held = held
        self._about = about
        self._settle = settle
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="delayq-keeper", daemon=True)
        self._renew_at = time.monotonic() + held.lease_s / 3
        self._announce_at = float("-inf")
        self._limit = LogLimit()

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, and wait for the end."""
        self._stop.set()
        self._held.busy.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._step()
            except BackendError as error:
                if hidden := self._limit.may_log(type(error).__name__):
                    log.warning("%s (%d times)", error, hidden)
                self._stop.wait(RETRY_S)

    def _step(self) -> None:
        now = time.monotonic()
        if now >= self._announce_at:
            self._consumer.announce(self._about, ANNOUNCE_TTL_S)
            self._held.lease_s = self._consumer.lease_s()
            self._announce_at = now + ANNOUNCE_S
        if not self._held.all():
            self._held.busy.clear()
            self._renew_at = time.monotonic() + self._held.lease_s / 3
            if not self._held.all():  # added between the two looks: then `busy` was set before it was cleared
                self._held.busy.wait(max(0.0, self._announce_at - time.monotonic()))
            return
        if now >= self._renew_at:
            self._renew()
        if self._held.blocked_for() > WORTH_S:
            self._make_room()
        self._stop.wait(LOOK_S)

    def _renew(self) -> None:
        sent_at = boot_clock()
        renewal = self._consumer.renew(self._held.all())
        self._renew_at = time.monotonic() + self._held.lease_s / 3
        self._held.drop(renewal.lost)
        self._held.confirm(sent_at)
        self.replay_wanted = self.replay_wanted or renewal.surplus

    def _make_room(self) -> None:
        waiting = self._held.take_waiting()
        if waiting:
            self._consumer.hand_back(waiting)
        self._settle()
