"""What becomes of the deliveries of a dead child. Its shared memory says where each of them was.

    finished       settled, as the child would have done
    not started    handed back; it costs nothing
    running        by how the child died: when a job was over its time, that job timed out, or, when the child was
                   stopped (SIGSTOP, a debugger), one recovery, because it may not be late at all; when the supervisor
                   ended the child for any other reason, handed back; when it died by itself, one recovery.
                   When several were over their time, one of them may have kept the others: one recovery each,
                   so that each starts alone next time, and times out by itself or not at all
    unknown        what the backend holds for the child and the child did not know of: handed back

Each step may be repeated. While the backend is away the dead wait here; leases that run out meanwhile are
the janitor's, and then these steps find themselves fenced.
"""

from __future__ import annotations

import logging
import time

from delayq.core import envelope as envelopes
from delayq.core.errors import AWAY, BadEnvelope, DelayqError
from delayq.core.events import JobEnded
from delayq.core.interrupts import JobCancelled
from delayq.core.outcome import Ack, GiveUp, Release, stopped
from delayq.core.shards import queue_of
from delayq.drivers.base import Claim, Steward
from delayq.loops.troubles import Troubles
from delayq.worker import spill
from delayq.worker.brood import Killed, Member
from delayq.worker.clock import boot_clock
from delayq.worker.killed import of_a_killed, timed_out
from delayq.worker.listeners import Listeners
from delayq.worker.meter import Meter
from delayq.worker.plan import Plan
from delayq.worker.policies import Policies
from delayq.worker.slots import CANCEL, RUNNING, UNSTARTED, Seen

log = logging.getLogger("delayq.supervisor")

RETRY_S = 0.2
GIVE_UP_S = 60.0  # with a damaged queue: by then leases have run out, and its entries are the janitor's
LEFTOVER_LOOKS = 3


class Grave:
    """A dead child, read once. Reading is enough: nobody writes there any more."""

    def __init__(self, member: Member, kill_after_s: float) -> None:
        self.member = member
        self.died_at = boot_clock()
        self.worked_until = member.slots.working_clock()
        self.back: list[Claim] = []
        self.vanished: list[Claim] = []
        self.late: list[Seen] = []
        self.cancelled: list[Seen] = []
        self._late_by_s = kill_after_s / 2
        seen = member.slots.read()[1]
        self.settled = spill.ended(member.slots, seen)
        for item in seen:
            self._sort(item)
        if len(self.late) > 1 or member.killed is Killed.FROZEN:
            self.vanished += [item.claim for item in self.late]
            self.late = []

    @property
    def empty(self) -> bool:
        """Whether no delivery is known to be left; taking the name off the lists can wait for a janitor."""
        return not (self.settled or self.back or self.vanished or self.late or self.cancelled)

    def _sort(self, item: Seen) -> None:
        if item.phase in UNSTARTED:
            self.back.append(item.claim)
        elif item.phase == RUNNING:
            self._sort_running(item, self.member.slots.orders_for(item.slot, item.generation) & CANCEL)

    def _sort_running(self, item: Seen, cancelled: int) -> None:
        by_us = self.member.killed is not None or self.member.ended_itself
        if cancelled:
            self.cancelled.append(item)
        elif not by_us:
            self.vanished.append(item.claim)
        elif (
            item.soft_at
            and self.worked_until - item.soft_at >= self._late_by_s
            and self.member.killed is not Killed.STOP
        ):
            self.late.append(item)
        else:
            self.back.append(item.claim)


class Aftermath:
    """Clears up after dead children, as long as it takes."""

    def __init__(self, plan: Plan, steward: Steward, meter: Meter) -> None:
        self.graves: list[Grave] = []
        self._plan = plan
        self._steward = steward
        self._meter = meter
        self._policies = Policies(plan.options.fallback)
        self._kill_after_s = plan.options.kill_after_ms / 1000
        self._listeners = Listeners(plan.audience)
        self._rest_until = 0.0
        self._troubles = Troubles(log)

    @property
    def unsettled(self) -> bool:
        """Whether deliveries wait to be settled or given back."""
        return not all(grave.empty for grave in self.graves)

    def add(self, member: Member) -> list[Claim]:
        """A child has died. The jobs that may be to blame for it: one ended the process, or kept the others."""
        grave = Grave(member, self._kill_after_s)
        self.graves.append(grave)
        return [] if member.killed is Killed.FROZEN else list(grave.vanished)

    def step(self, *, at_once: bool = False) -> None:
        """Clear up what can be cleared up now."""
        if not at_once and time.monotonic() < self._rest_until:
            return
        for grave in list(self.graves):
            try:
                self._clear(grave)
            except DelayqError as error:
                self._rest_until = time.monotonic() + RETRY_S
                self._troubles.tell(error, f"child {grave.member.number}, which is dead")
                if isinstance(error, AWAY):
                    return
                if boot_clock() - grave.died_at < GIVE_UP_S:
                    continue  # one damaged queue; the others' turn, and then this one's again
            self.graves.remove(grave)

    def _clear(self, grave: Grave) -> None:
        steward, name = self._steward, grave.member.name
        for item in grave.cancelled:
            self._end(grave, item, JobCancelled())
        for item in grave.late:
            self._end(grave, item, timed_out(grave.worked_until - item.started, item.soft_at - item.started))
        grave.cancelled, grave.late = [], []
        steward.settle(grave.settled)
        if grave.vanished:
            log.error("its process vanished while it ran: job %s", ", ".join(claim.id for claim in grave.vanished))
            steward.recover(grave.vanished)
            grave.vanished = []
        steward.hand_back(grave.back)
        for _ in range(LEFTOVER_LOOKS):
            unknown = steward.pending(name)
            if not unknown:
                break
            steward.hand_back(unknown)
        steward.retire(name)

    def _end(self, grave: Grave, item: Seen, error: BaseException) -> None:
        """Settle one as its own process could not, and tell of it."""
        raw = self._steward.envelope(item.claim)
        outcome = of_a_killed(self._plan.registry, self._policies, raw, error, self._steward.now_ms())
        if isinstance(outcome, Release) and self._steward.asked_to_stop(item.claim):
            outcome = stopped(outcome)  # settling would find that out, but could not say it
        (mine,) = self._steward.settle([(item.claim, outcome)])
        if not mine:
            return
        word = {Ack: "stopped", Release: "released", GiveUp: "failed"}[type(outcome)]
        took_ms = (grave.worked_until - item.started) * 1000
        name, attempt = _named(raw)
        self._meter.ended(self._meter.place(item.claim.queue, name), word, took_ms)
        if self._listeners:
            cause = None if isinstance(outcome, Ack) else error
            self._listeners.tell(
                JobEnded(item.claim.id, name, queue_of(item.claim.queue), attempt, word, took_ms, cause)
            )


def _named(raw: bytes) -> tuple[str, int]:
    """Name and number of the attempt; '' and 0 for bytes that are no envelope."""
    try:
        envelope = envelopes.decode(raw)
    except BadEnvelope:
        return "", 0
    return envelope.name, envelope.attempts + 1
