"""The keeper: a thread that renews leases and sees to it that a slow job makes nobody wait.

Three duties, by time: renew everything held every third of a lease; announce the worker; and when
a job has run for longer than the prefetch is worth, settle what is finished and hand back what has
not started, so that another worker may take it. A duty that fails keeps no other from its time.

A handler that holds the interpreter's lock stops this thread too. Then the lease runs out, the job
is taken back, and its late end is fenced. (A supervisor process outside the interpreter ends that.)
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from delayq.drivers.base import Consumer
from delayq.loops.troubles import Troubles
from delayq.worker.held import Held, boot_clock
from delayq.worker.prefetch import WORTH_S
from delayq.worker.settler import Settler

log = logging.getLogger("delayq.keeper")

LOOK_S = 0.010  # while a job keeps others waiting
ALONE_S = 0.100  # while it keeps nobody
RETRY_S = 0.2
ANNOUNCE_S = 5.0
ANNOUNCE_RETRY_S = 1.0
ANNOUNCE_TTL_S = 20.0

CallOff = Callable[[frozenset[tuple[str, str]]], None]


class Keeper:
    """Keeps `held` for `consumer`. `call_off` is told which jobs were asked to stop, as (queue, id)."""

    def __init__(
        self, consumer: Consumer, held: Held, settler: Settler, call_off: CallOff, about: Mapping[str, Any]
    ) -> None:
        self._consumer = consumer
        self._held = held
        self._settler = settler
        self._call_off = call_off
        self._about = about
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="delayq-keeper", daemon=True)
        self._renew_at = 0.0
        self._make_room_at = 0.0
        self._announce_at = 0.0
        self._troubles = Troubles(log)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self, timeout_s: float) -> bool:
        """End, and wait for the end; False when it has not come by then, because a call of the keeper's hangs."""
        self._stop.set()
        self._held.busy.set()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        self._postpone_renewal()
        while not self._stop.is_set():
            now = time.monotonic()
            if now >= self._renew_at and not self._held.empty():
                self._renew_at = now + RETRY_S
                self._try(self._renew)
            if now >= self._make_room_at and self._held.blocked_for() > WORTH_S:
                self._make_room_at = now + RETRY_S
                self._try(self._make_room)
            if now >= self._announce_at:
                self._announce_at = now + ANNOUNCE_RETRY_S
                self._try(self._announce)
            self._pause()

    def _pause(self) -> None:
        if not self._held.empty():
            self._stop.wait(LOOK_S if self._held.others() else ALONE_S)
            return
        self._held.busy.clear()
        # What was added, or a stop asked for, since the look above was so before `busy` was cleared: look again.
        if self._held.empty() and not self._stop.is_set():
            self._held.busy.wait(max(0.0, self._announce_at - time.monotonic()))
            self._postpone_renewal()

    def _try(self, duty: Callable[[], None]) -> None:
        try:
            duty()
        except Exception as error:  # noqa: BLE001  (without its keeper a worker would lose every lease: go on, and say so)
            self._troubles.tell(error)

    def _postpone_renewal(self) -> None:
        self._renew_at = time.monotonic() + self._held.lease_s / 3

    def _renew(self) -> None:
        sent_at = boot_clock()
        reads, held = self._held.snapshot()
        renewal = self._consumer.renew(held)
        self._postpone_renewal()
        self._held.confirm(reads, sent_at)
        self._held.drop(renewal.lost)
        if renewal.asked_to_stop:
            self._held.call_off(renewal.asked_to_stop)
            self._call_off(renewal.asked_to_stop)
        if renewal.surplus:
            self._held.incomplete = True

    def _make_room(self) -> None:
        try:
            self._settler.hand_back()
        finally:
            self._settler.settle()
        self._make_room_at = 0.0

    def _announce(self) -> None:
        self._consumer.announce(self._about, ANNOUNCE_TTL_S)
        self._held.lease_s = self._consumer.lease_s()
        self._announce_at = time.monotonic() + ANNOUNCE_S
