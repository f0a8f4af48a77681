"""The supervisor: a process in which no user code runs, and its children, which do nothing else.

    supervisor ──┬── child 1 … N      read, run handlers, settle; one shared memory each
                 └── mover, janitor   unless --no-mover

It keeps the leases of what the children hold, ends what does not end, replaces what dies and clears up
after it, and listens to signals. One thread, one loop; it forks, so nothing else may run in it.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing

from delayq.core.control import WorkerOrder
from delayq.core.events import WorkerStarting, WorkerStopping
from delayq.core.when import format_duration
from delayq.drivers.base import Driver, Steward
from delayq.loops.vitals import Count, Vitals
from delayq.worker.about import running
from delayq.worker.aftermath import Aftermath
from delayq.worker.booth import Booth
from delayq.worker.brood import Brood, Killed, Member
from delayq.worker.care import Care
from delayq.worker.clock import Standstill
from delayq.worker.emptiness import Emptiness
from delayq.worker.fork import Process
from delayq.worker.isolation import Isolation
from delayq.worker.listeners import Listeners
from delayq.worker.memory import MemoryLimit
from delayq.worker.meter import Meter
from delayq.worker.moods import Moods
from delayq.worker.names import consumer_name
from delayq.worker.options import StopReason
from delayq.worker.overtime import Overtime
from delayq.worker.patience import wait_for_backend
from delayq.worker.plan import Plan
from delayq.worker.renewing import Renewing
from delayq.worker.report import report
from delayq.worker.signals import Signals
from delayq.worker.slots import Stop, Word
from delayq.worker.tallying import Tallying

log = logging.getLogger("delayq.supervisor")

TICK_S = 0.1
NAMED = 5  # jobs in one line of the log
NEAR_TICK_S = 0.02
GONE_LOOK_S = 0.25
# For children that run nothing: they leave by themselves.
GONE_GRACE_S = 1.0
# Its calls are few and can all be repeated; a short wait keeps the loop going when the backend hangs.
ANSWER_MS = 500
# A turn asks the backend a few times and waits ANSWER_MS each; a longer one was not this process's doing.
TURN_S = 3.0
# So long before the grace ends a handler is interrupted, so that it can clean up; of a short grace, its last quarter.
LAST_CALL_S = 3.0
LAST_CALL_PART = 1 / 4
# No call begins so shortly before the grace ends: it could last beyond, and the one that gives back comes after it.
LAST_WORDS_S = 0.6


class Supervisor:
    """One worker; `run` blocks and may be called once."""

    def __init__(self, plan: Plan) -> None:
        options = plan.options
        self._plan = plan
        self._options = options
        self._signals = Signals(self._speak, last=options.ends_process)
        self._name = options.name or consumer_name()
        self._listeners = Listeners(plan.audience)
        self._moods = Moods(self._name, options.queues, self._listeners)
        self._reason: StopReason | None = None
        self._grace_ends = float("inf")
        self._memory = MemoryLimit(options.memory_mb)
        self._look_at = 0.0
        self._last_call_s = 0.0
        self._told = self._gone = False
        self._to_dump: list[Member] = []
        self._ordered = WorkerOrder.RESUME

    def run(self, ready: Callable[[], None] = lambda: None) -> StopReason:
        """Work until there is a reason to stop; returns it. Only in the main thread.

        `ready` is called once signals are heard.

        Raises `ConfigError` when the backend refuses us; waits for one that is not there yet.
        """
        if threading.active_count() > 1:
            names = ", ".join(thread.name for thread in threading.enumerate() if thread is not threading.main_thread())
            log.warning("threads started while the application was imported do not exist in the children: %s", names)
        reason, done, listeners = StopReason.INTERRUPTED, 0, self._listeners
        with self._signals, closing(self._plan.driver_factory(answer_ms=ANSWER_MS)) as driver:
            ready()
            listeners.tell(self._starting())
            steward = driver.steward(self._options.queues)
            renewing = wait_for_backend(
                lambda: Renewing(self._plan, steward, worker=self._name), self._is_told_to, self._signals.wait
            )
            if renewing is not None:
                self._make(driver, steward, renewing)
                reason, done = self._work(), self._brood.done
            self._moods.hear(self._signals, quiet=self._ordered is WorkerOrder.QUIET)
        listeners.tell(WorkerStopping(self._name, reason, done))
        return reason

    def _starting(self) -> WorkerStarting:
        options = self._options
        return WorkerStarting(self._name, options.queues, options.weights, self._plan.registry.names())

    def _work(self) -> StopReason:
        started = time.monotonic()
        if self._options.once:  # it leaves before its mover has looked for the first time
            self._emptiness.promote()
        try:
            while (reason := self._turn(started)) is None:
                tick_s = NEAR_TICK_S if self._emptiness.near else TICK_S
                self._notice_standstill(TURN_S)
                self._signals.wait(min(tick_s, self._grace_ends - time.monotonic()))
                self._notice_standstill(TICK_S)
            return reason
        finally:
            self._leave()

    def _notice_standstill(self, longest_s: float) -> None:
        """Move the timeouts of what runs by the time for which this process stood still in a step of `longest_s`."""
        continued, self._signals.continued = self._signals.continued, False
        still_s = self._standstill.step(0.0 if continued else longest_s)
        if still_s:
            for member in self._brood.members.values():
                member.slots.floats[Word.STILL] += still_s
            log.warning("this worker stood still for %.1f s; the timeouts of its jobs do not count that time", still_s)

    def _make(self, driver: Driver, steward: Steward, renewing: Renewing) -> None:
        plan = self._plan
        if not plan.alone:
            log.info(
                "jobs share processes here (--threads or async handlers): when one does not end after its timeout, the "
                "worker kills its process; the other jobs of that process are handed back and start again"
            )
        if too_long := longer_than_grace(plan):
            log.warning("%s", too_long)
        self._renewing = renewing
        jobs = plan.registry.names()
        meters = {number: Meter(plan.options.queues, jobs) for number in range(plan.options.processes + plan.cells + 1)}
        self._brood = Brood(plan, renewing.prepare, meters)
        self._vitals = Vitals()
        self._care = Care(plan, self._vitals)
        self._booth = Booth(plan, list(meters.values()), self._vitals)
        self._overtime = Overtime(plan)
        self._standstill = Standstill()
        self._aftermath = Aftermath(plan, steward, meters[0])
        self._isolation = Isolation(plan, steward, self._brood)
        self._tallying = Tallying(list(meters.values()), steward)
        self._emptiness = Emptiness(plan, driver, self._brood)

    def _turn(self, started: float) -> StopReason | None:
        """One look at everything; the reason once all has come to an end."""
        self._bury_the_dead()
        if self._listeners:
            self._moods.hear(self._signals, quiet=self._ordered is WorkerOrder.QUIET)
            self._moods.look(self._brood)
        if self._reason is None:
            self._reason = self._reason_to_stop(started)
            if self._reason is not None:
                self._begin_to_stop()
        if self._reason is None:
            self._care.step(self._processes())
            self._brood.spawn_due([*self._care.processes(), *self._booth.processes()], self._word())
            self._booth.step(self._processes())
            self._isolation.step(
                [*self._care.processes(), *self._booth.processes()], self._word(), self._renewing.lease_s
            )
        elif self._stopped():
            return self._reason
        members = list(self._brood.members.values())
        self._notice_standstill(TURN_S)
        self._overtime.step(members)
        if self._has_time():
            self._renewing.step(members)
            self._hear_order()
            self._tallying.step()
        self._vitals.set(Count.CHILDREN, len(members))
        self._dump()
        return None

    def _bury_the_dead(self) -> None:
        for member in self._brood.reap():
            self._vitals.add(Count.DEATHS, not member.ended_itself)
            self._renewing.forget(member)
            self._overtime.forget(member)
            self._brood.accuse(self._aftermath.add(member))
        if self._has_time():
            self._aftermath.step()
        if os.getpid() == 1:
            _reap_orphans(self._processes())

    def _reason_to_stop(self, started: float) -> StopReason | None:
        """In Laravel's order."""
        options = self._options
        if self._is_told_to():
            return StopReason.GONE if self._gone else StopReason.INTERRUPTED
        if self._memory.exceeded() or self._brood.over_memory:
            return StopReason.MEMORY
        if self._brood.called_to_restart or self._renewing.order is WorkerOrder.RESTART:
            return StopReason.RESTART
        if self._renewing.order is WorkerOrder.STOP:
            return StopReason.STOPPED
        if (reason := self._emptiness.reason(busy=bool(self._aftermath.graves))) is not None:
            return reason
        if options.max_time_ms and (time.monotonic() - started) * 1000 >= options.max_time_ms:
            return StopReason.MAX_TIME
        if self._brood.used_up:
            return StopReason.ONCE if options.once else StopReason.MAX_JOBS
        return None

    def _begin_to_stop(self) -> None:
        grace_s = self._options.grace_ms / 1000
        if self._reason is StopReason.GONE:
            grace_s = min(grace_s, GONE_GRACE_S)
            log.warning("what it serves is gone: nothing that runs could be settled, and it starts again elsewhere")
        signalled = self._reason is StopReason.INTERRUPTED and self._signals.first_stop
        why = f"terminated by {signalled}" if signalled else self._reason
        log.info("stopping (%s); what runs has %g s", why, grace_s)
        self._last_call_s = min(LAST_CALL_S, grace_s * LAST_CALL_PART)
        # From the signal on, not from when a backend that hangs let us look for one.
        self._grace_ends = min(time.monotonic(), self._signals.stopped_at) + grace_s
        self._brood.stop_respawning()
        for member in self._brood.members.values():
            member.tell(Stop.DRAIN)

    def _stopped(self) -> bool:
        """Whether nobody is left, or nobody may be left any longer."""
        members = self._brood.members.values()
        if not members and not (self._aftermath.unsettled and self._has_time()):
            return True
        if time.monotonic() >= self._grace_ends - self._last_call_s:
            self._call_last()
        if self._signals.stops > 1 and any(member.running for member in members):
            self._reason = StopReason.ABORTED
        if self._signals.stops > 1 or time.monotonic() >= self._grace_ends:
            for member in members:
                member.kill(Killed.STOP)
            return True
        return False

    def _call_last(self) -> None:
        """Interrupt what still runs, and name it: a job longer than the grace is interrupted at each deploy."""
        said = []
        for member in self._brood.members.values():
            if member.slots.ints[Word.LAST_CALL]:
                continue
            member.slots.ints[Word.LAST_CALL] = 1
            for item in running(member):
                ran_ms = round((member.slots.working_clock() - item.started) * 1000)
                said.append(f"{item.claim.id} (has run for {format_duration(ran_ms)})")
        if said:
            more = f" and {len(said) - NAMED} more" if len(said) > NAMED else ""
            log.warning(
                "the grace of %s is nearly over, so what still runs is interrupted: %s%s. It is handed back, costs no "
                "attempt, and starts again from its beginning. If it needs longer, set --grace or DELAYQ_GRACE above "
                "that, and the stop time of the process manager above the grace.",
                format_duration(self._options.grace_ms),
                ", ".join(said[:NAMED]),
                more,
            )

    def _has_time(self) -> bool:
        """Whether a call to the backend ends before the grace does, even without an answer."""
        return time.monotonic() < self._grace_ends - LAST_WORDS_S

    def _leave(self) -> None:
        """Nobody stays behind, and what can still be given back is."""
        self._care.end()
        self._booth.end()
        for member in self._brood.members.values():
            member.kill(Killed.STOP)
        while self._brood.members:
            self._bury_quickly()
        self._aftermath.step(at_once=True)
        if self._aftermath.unsettled:
            log.warning("left without settling everything; leases that run out do the rest")
        elif self._aftermath.graves:
            log.warning("left without a word: the backend does not answer")
        elif self._reason is not StopReason.GONE:
            self._tallying.step(at_once=True)

    def _bury_quickly(self) -> None:
        for member in self._brood.reap():
            self._aftermath.add(member)
        if self._brood.members:
            self._signals.wait(0.01)

    def _is_told_to(self) -> bool:
        """Whether somebody wants an end: by a signal, or because what is served is gone."""
        now = time.monotonic()
        if not self._signals.stops and now >= self._look_at:
            self._look_at = now + GONE_LOOK_S
            self._told, self._gone = self._plan.told(), self._plan.gone()
        return self._told or self._gone or self._signals.stops > 0

    def _hear_order(self) -> None:
        """Tell the children when an operator has told this worker something else than before."""
        if self._renewing.order is not self._ordered:
            self._ordered = self._renewing.order
            log.info("an operator told this worker: %s", self._ordered)
            self._speak()

    def _word(self) -> Stop:
        quiet = self._signals.paused or self._renewing.order is WorkerOrder.QUIET
        return Stop.PAUSE if quiet else Stop.NO

    def _speak(self) -> None:
        """In a signal's handler: tell the children at once, also while the loop waits for the backend."""
        brood = getattr(self, "_brood", None)
        if brood is not None:
            for member in list(brood.members.values()):
                member.tell(Stop.DRAIN if self._signals.stops else self._word())

    def _processes(self) -> list[Process]:
        return [
            *self._care.processes(),
            *self._booth.processes(),
            *(member.process for member in self._brood.members.values()),
        ]

    def _dump(self) -> None:
        """What runs where; then the stacks of the children, one each turn, so that they do not mix."""
        if self._signals.dump_wanted:
            self._signals.dump_wanted = False
            members = list(self._brood.members.values())
            for line in report(members, self._brood.done):
                log.warning("%s", line)
            self._to_dump = members
        elif self._to_dump:
            member = self._to_dump.pop(0)
            if member.process.pid in self._brood.members:
                member.process.send(signal.SIGTTIN)


def longer_than_grace(plan: Plan) -> str:
    """A sentence on the registered jobs that say that they may run longer than the grace; '' for none."""
    grace_ms, said = plan.options.grace_ms, {}
    for name in plan.registry.names():
        timeout_ms = plan.registry.get(name).options.timeout_ms
        if timeout_ms is not None and not 0 < timeout_ms <= grace_ms:
            said[name] = format_duration(timeout_ms) if timeout_ms else "without a limit"
    if not said:
        return ""
    named = [f"{name} ({limit})" for name, limit in list(said.items())[:NAMED]]
    more = f" and {len(said) - NAMED} more" if len(said) > NAMED else ""
    return (
        f"These jobs may run longer than the grace of {format_duration(grace_ms)} that a stopping worker gives them: "
        f"{', '.join(named)}{more}. A stop interrupts them, and they start again from their beginning. Set --grace or "
        "DELAYQ_GRACE above their timeouts, and the stop time of the process manager above the grace."
    )


def _reap_orphans(known: Sequence[Process]) -> None:
    """As process 1: whoever lost its parent is ours, and must be waited for. Our own are left to their keepers."""
    ours = {process.pid for process in known}
    while True:
        try:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if found is None or found.si_pid in ours:
            return
        os.waitpid(found.si_pid, os.WNOHANG)
