"""Keeps the leases of all children, by what their slots say: what a child holds, and nothing else.

So a handler that holds the interpreter's lock keeps its lease, and a delivery that nobody knows of (its
reply was lost on the way) is not kept for ever. What the backend answers is passed on: entries that are
somebody else's by now, jobs that shall stop, and "there is more than you know of".

A child that has not looked around for a third of a lease (frozen, or its interpreter's lock is held) is renewed and
no longer told so. Without being told it may start nothing 2/3 of a lease after the last time; a lease after that, what
it has finished is settled here and what it has not started is handed back, because it cannot do so itself.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

from delayq.core.errors import DelayqError
from delayq.core.when import format_duration
from delayq.drivers.base import Renewal, Steward
from delayq.loops.troubles import Troubles
from delayq.worker.about import about, running, state
from delayq.worker.brood import Member
from delayq.worker.clock import boot_clock
from delayq.worker.plan import Plan
from delayq.worker.slots import CANCEL, FINISHED, LOST, SETTLED, SPILLED, WAITING, Seen, Slots, Word
from delayq.worker.spill import ended

log = logging.getLogger("delayq.supervisor")

RETRY_S = 0.2
LEASE_LOOK_S = 5.0  # an operator may have changed it
ANNOUNCE_S = 10.0
NEWS_S = 1.0
ANNOUNCE_TTL_S = 30.0
HINT_S = 1.0


_FREED = frozenset((WAITING, FINISHED, SPILLED))


class Renewing:
    """Renews and announces. `lease_s` is the shortest of the queues, and `order` what an operator told `worker`, both
    as last read."""

    def __init__(
        self, plan: Plan, steward: Steward, clock: Callable[[], float] = time.monotonic, *, worker: str = ""
    ) -> None:
        self.lease_s = steward.lease_s()
        self.order = steward.order(worker)
        self._worker = worker
        self._plan = plan
        self._steward = steward
        self._clock = clock
        self._changes = steward.changes()
        self._offset_ms = steward.now_ms() - time.monotonic() * 1000
        self._started_ms = steward.now_ms()
        self._renew_at: dict[Member, float] = {}
        self._announce_at: dict[Member, float] = {}
        self._told: dict[Member, object] = {}
        self._lease_at = clock() + LEASE_LOOK_S
        self._rest_until = 0.0
        self._hints: dict[tuple[str, str], float] = {}
        self._troubles = Troubles(log)
        self._warned: set[str] = set()
        self._warn_of_other_leases()

    def prepare(self, slots: Slots) -> None:
        """What a new child has to know."""
        slots.floats[Word.LEASE] = self.lease_s
        slots.floats[Word.CLOCK_MS] = self._offset_ms
        slots.ints[Word.SWITCHES] = self._changes

    def step(self, members: Sequence[Member]) -> None:
        """Renew and announce those whose time has come. A failure ends the step; all are tried again soon."""
        if self._clock() < self._rest_until:
            return
        self._hear(members)
        try:
            self._look_at_lease_if_due(members)
            for member in members:
                self._renew_if_due(member)
            for member in members:
                self._announce_if_due(member)
            self._steward.listen()
        except DelayqError as error:
            self._rest_until = self._clock() + RETRY_S
            self._troubles.tell(error)

    def forget(self, member: Member) -> None:
        """It is dead."""
        self._renew_at.pop(member, None)
        self._announce_at.pop(member, None)
        self._told.pop(member, None)

    def _hear(self, members: Sequence[Member]) -> None:
        """A job that somebody asks to stop is renewed at once, because that reads the wish.

        A hint may come before the child has written down what it read; so it is kept for a moment.
        """
        now = self._clock()
        self._hints.update(dict.fromkeys(self._steward.heard(), now + HINT_S))
        for member in members if self._hints else ():
            for item in member.slots.read()[1]:
                if self._hints.pop((item.claim.queue, item.claim.id), None):
                    self._renew_at[member] = now
        self._hints = {job: until for job, until in self._hints.items() if until > now}

    def _look_at_lease_if_due(self, members: Sequence[Member]) -> None:
        """At switches too: a child that waits for work looks at them when something has changed."""
        changes = self._steward.changes()
        if changes != self._changes or self._clock() >= self._lease_at:
            self.lease_s = self._steward.lease_s()
            self._warn_of_other_leases()
            self._changes = self._steward.changes()
            self.order = self._steward.order(self._worker)
            self._lease_at = self._clock() + LEASE_LOOK_S
            for member in members:
                self.prepare(member.slots)

    def _warn_of_other_leases(self) -> None:
        """Warn once for each queue that keeps another lease than the one the user set, which then has no effect."""
        set_ms = self._plan.lease_ms
        if set_ms is None:
            return
        for queue, kept_ms in self._steward.leases_ms().items():
            if kept_ms != set_ms and queue not in self._warned:
                self._warned.add(queue)
                log.warning(
                    "the lease setting %s has no effect on the queue %s: the queue keeps its own lease, %s. To change "
                    "it, run: delayq queue set %s --lease %s",
                    format_duration(set_ms),
                    queue,
                    format_duration(kept_ms),
                    queue,
                    format_duration(set_ms),
                )

    def _renew_if_due(self, member: Member) -> None:
        now = self._clock()
        # Never later than a third of the lease as it is now: it may have been made shorter meanwhile.
        self._renew_at[member] = min(self._renew_at.get(member, float("inf")), now + self.lease_s / 3)
        if now < self._renew_at[member]:
            return
        epoch, seen = member.slots.read()
        sent_at = boot_clock()
        renewal = self._steward.renew(member.name, [item.claim for item in seen])
        self._renew_at[member] = self._clock() + self.lease_s / 3
        self._pass_on(member, seen, renewal)
        for error in renewal.errors:
            self._troubles.tell(error)
        looked_at = member.slots.floats[Word.LOOKED_AT]
        if sent_at - looked_at > self.lease_s / 3:
            self._relieve(member, sent_at)
        elif epoch and not renewal.errors:
            member.slots.confirm(epoch, sent_at)
        if renewal.surplus and member.slots.ints[Word.EPOCH] == epoch:
            member.slots.ints[Word.REPLAY] += 1

    def _relieve(self, member: Member, now: float) -> None:
        """Do for a child that stands still what it cannot do, once it must not start what it has not started.

        It may wake up at any moment. So it hears that something is lost before that is handed back, and that something
        is settled only when it is: an outcome it has forgotten, and the backend has not got, would be run again. What
        was taken back, or what it has settled itself without having heard, it finds out, and says so.
        """
        seen = member.slots.read()[1]  # anew: the renewal may have taken long
        _, told_at = member.slots.confirmed()
        last_s = max(told_at, member.slots.floats[Word.READ_AT])
        freed = [item for item in seen if item.phase in _FREED]
        if not freed or now - last_s < self.lease_s:
            return
        waiting = [item for item in freed if item.phase == WAITING]
        finished = [item for item in freed if item.phase != WAITING]
        for item in waiting:
            member.slots.give_order(item, LOST)
        outcomes = ended(member.slots, finished)
        answers = self._steward.settle(outcomes)
        settled = {claim for (claim, _), ours in zip(outcomes, answers, strict=True) if ours}
        for item in finished:
            if item.claim in settled:
                member.slots.give_order(item, SETTLED)
        self._steward.hand_back([item.claim for item in waiting])
        log.warning(
            "child %d (process %d) stands still; jobs beside the running one that are settled or handed back: %d",
            member.number,
            member.process.pid,
            len(freed),
        )

    def _pass_on(self, member: Member, seen: list[Seen], renewal: Renewal) -> None:
        """Orders before the confirmation: nobody may start what is lost because all else was renewed."""
        if not renewal.lost and not renewal.asked_to_stop:
            return
        for item in seen:
            job = (item.claim.queue, item.claim.id)
            if job in renewal.lost:
                member.slots.give_order(item, LOST)
            if job in renewal.asked_to_stop:
                member.slots.give_order(item, CANCEL)

    def _announce_if_due(self, member: Member) -> None:
        now = self._clock()
        if now < self._announce_at.get(member, float("-inf")) and not self._has_news(member, now):
            return
        self._announce_at[member] = now + ANNOUNCE_S
        self._told[member] = self._news(member)
        said = {**about(member, self._plan, self._started_ms, self.order), "worker": self._worker}
        self._steward.announce(member.name, said, ANNOUNCE_TTL_S)
        self._offset_ms = self._steward.now_ms() - time.monotonic() * 1000
        self.prepare(member.slots)

    def _has_news(self, member: Member, now: float) -> bool:
        """Whether it runs something else than was told; looked at once a second."""
        if now < self._announce_at[member] - ANNOUNCE_S + NEWS_S:
            return False
        return self._news(member) != self._told.get(member)

    def _news(self, member: Member) -> object:
        return [(item.claim, item.started) for item in running(member)], state(member, self.order)
