"""One attempt, step by step, whoever runs it: read the envelope, may it start?, then what became of it.

Nothing a handler does gets past here: whatever it raises becomes an outcome.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

import msgspec

from delayq.core import envelope as envelopes
from delayq.core.at_work import AT_WORK, AtWork
from delayq.core.envelope import ABSENT, Envelope
from delayq.core.errors import BadEnvelope, BrokenSeal, DelayqError, UnknownJob
from delayq.core.events import Event
from delayq.core.follow import linked, readable_part
from delayq.core.interrupts import JobCancelled, JobInterrupted, WorkerShutdown
from delayq.core.keyring import NO_KEYS, Keyring
from delayq.core.limiting import CalledOff, Unlock, Who
from delayq.core.outcome import DONE, Ack, GiveUp, Outcome, Policy, Release, before_start, decide, stopped, told_as
from delayq.core.ran import dated, ran
from delayq.core.sealing import Place, What, open_data, seal_value
from delayq.core.shards import queue_of
from delayq.core.signals import Discard, Fail, JobSignal, TurnedAway
from delayq.core.unique import Until, until_of, word_of
from delayq.drivers.base import Delivery
from delayq.jobs.context import JobContext
from delayq.jobs.coordinated import RunningBatch, RunningChain, batch_of
from delayq.jobs.coordination import ManagerCoordinator
from delayq.jobs.current import current_manager
from delayq.jobs.handler import Handler
from delayq.jobs.member import Member
from delayq.jobs.registry import Registry
from delayq.jobs.results import encoded
from delayq.jobs.talk import Talk
from delayq.jobs.unlocking import unlocking
from delayq.worker.clock import boot_clock
from delayq.worker.held import Held
from delayq.worker.lines import Lines
from delayq.worker.listeners import Listeners
from delayq.worker.meter import Meter
from delayq.worker.policies import Policies
from delayq.worker.telling import at_work_on, ended, started

COORDINATOR = ManagerCoordinator(current_manager)


class Attempt(msgspec.Struct, eq=False):
    """A delivery whose envelope is read and whose handler is found.

    `refused` is set when it may not start, and its handler wants to hear of that: `call` raises the error then, and a
    crew runs the `failed` hook as after any other failure. `limit_s`: seconds it may take, 0 = for ever. `plain`: it is
    in no chain and no batch, and owns no key, as most are; asked once, for all that follows.
    """

    held: Held
    envelope: Envelope
    handler: Handler
    policy: Policy
    lines: Lines
    keyring: Keyring
    limit_s: float
    plain: bool
    started: float
    place: int = 0
    refused: GiveUp | None = None
    at_work: Callable[[], AtWork] | None = None
    chain: RunningChain | None = None
    batch: RunningBatch | None = None

    def __repr__(self) -> str:
        """Without the envelope and the keys."""
        return f"Attempt({self.held!r})"

    @property
    def delivery(self) -> Delivery:
        """What is tried."""
        return self.held.delivery

    def call(self) -> Any:
        """Call the handler; for an async one, the coroutine to await."""
        if self.refused is not None:
            raise self.refused.error
        if self.at_work is not None:
            AT_WORK.set(self.at_work)
        handler = self.handler if self.plain else self._asking()
        return handler.run(self.envelope.data, self._context)

    def _asking(self) -> Handler:
        """The handler, which asks after its batch before it begins, and frees the job's own key."""
        limits, delivery, envelope = self.lines.limits, self.delivery, self.envelope
        if limits is None:
            return self.handler
        who = Who(delivery.queue, delivery.id, delivery.entry)
        handler, part = self.handler, readable_part(envelope)
        if envelope.unique is not None and until_of(envelope.unique) is Until.START:
            handler = unlocking(handler, Unlock(who, word_of(envelope.unique)), limits)
        if part is None or part.batch is None:
            return handler
        return Member(handler, CalledOff(who, part.batch, part.spared), limits)

    @property
    def followed(self) -> bool:
        """Whether anything follows its end, also what its handler added."""
        return linked(self.envelope) or (self.chain is not None and self.chain.changed() != b"")

    def hurry(self, now_ms: int) -> None:
        """It may take no longer than its deadline allows."""
        if self.policy.deadline_ms is not None:
            left_s = max(1, self.policy.deadline_ms - now_ms) / 1000
            self.held.deadline_at = boot_clock() + left_s
            self.limit_s = min(self.limit_s, left_s) if self.limit_s else left_s

    def _context(self) -> JobContext:
        delivery, envelope = self.delivery, self.envelope
        if self.chain is None:  # middleware and handler may each ask; what one adds, the other sees
            self.chain, self.batch = RunningChain(envelope, COORDINATOR), batch_of(envelope, COORDINATOR)
        return JobContext(
            id=delivery.id,
            name=envelope.name,
            queue=queue_of(delivery.queue),
            attempt=envelope.attempts + 1,
            tries=self.policy.tries,
            recoveries=delivery.recoveries,
            due_ms=delivery.due_ms,
            token=delivery.entry,
            headers=envelope.headers or {},
            tags=tuple(envelope.tags or ()),
            stop_asked=partial(self.lines.stop_asked, self.held),
            talk=Talk(self.lines, self.held, None if envelope.encrypted is ABSENT else self._seal),
            chain=self.chain,
            batch=self.batch,
            raw=delivery.raw,
        )

    def _seal(self, partial_result: bytes) -> bytes:
        place = Place(self.delivery.id, self.envelope.name)
        return seal_value(self.keyring, place, What.PARTIAL, partial_result)


class Attempts:
    """Makes attempts of deliveries and outcomes of attempts. `now_ms` is the backend's clock as last seen.

    `worker` is the name of who makes them. `out_of_memory` is set when a handler ran out of it: what is left of the
    process is not to be trusted for long.
    """

    def __init__(
        self,
        registry: Registry,
        policies: Policies,
        now_ms: Callable[[], int],
        lines: Lines,
        listeners: Listeners,
        *,
        keyring: Keyring = NO_KEYS,
        meter: Meter | None = None,
    ) -> None:
        self.now_ms = now_ms
        self._keyring = keyring
        self._meter = meter
        self.worker = ""
        self.out_of_memory = False
        self._registry = registry
        self._policies = policies
        self._listeners = listeners
        self._lines = lines
        self._heard, self._all_heard = bool(listeners), listeners.hear_all

    def prepare(self, held: Held) -> Attempt | Outcome:
        """The attempt to run; or the outcome, when there is nothing to run."""
        delivery = held.delivery
        try:
            if delivery.unreadable:
                raise BadEnvelope(delivery.unreadable)
            envelope = envelopes.decode(delivery.raw)
        except BadEnvelope as error:
            return self._unrun(delivery, None, GiveUp(0, 0, error))
        if delivery.stop:
            outcome = decide(envelope, self._policies.of(envelope, None), JobCancelled(), self.now_ms(), random.random)
            held.ended_as = "stopped"
            return self._unrun(delivery, envelope, outcome, held.ended_as)
        try:
            handler = self._registry.find(envelope.name, delivery.queue)
        except UnknownJob as error:
            policy, keeps = self._policies.of(envelope, None), envelopes.keeps_headers(delivery.raw)
            outcome = decide(envelope, policy, error, self.now_ms(), random.random, keeps_headers=keeps)
            return self._unrun(delivery, envelope, outcome)
        policy = self._policies.of(envelope, handler)
        if envelope.encrypted is not ABSENT:
            opened = self._opened(delivery, envelope, policy)
            if not isinstance(opened, Envelope):
                return self._unrun(delivery, envelope, opened)
            envelope = opened
        plain = envelope.chain is ABSENT and envelope.batch is ABSENT and envelope.unique is None
        limit_s, began = policy.timeout_ms / 1000, time.monotonic()
        attempt = Attempt(held, envelope, handler, policy, self._lines, self._keyring, limit_s, plain, began)
        # Else nothing can speak against it.
        if envelope.attempts or policy.deadline_ms is not None or policy.retry_until_ms is not None:
            now_ms = self.now_ms()
            attempt.refused = refused = before_start(envelope, policy, now_ms)
            if refused is not None:
                return attempt if handler.hears_failures else self._unrun(delivery, envelope, refused)
            attempt.hurry(now_ms)
        if self._meter is not None:
            attempt.place = self._meter.began(delivery.queue, envelope.name, began, delivery.due_ms)
        if self._heard:
            attempt.at_work = partial(at_work_on, delivery, envelope, self.worker)
            if self._all_heard:
                self._tell(started(delivery, envelope, self.now_ms()), attempt.at_work)
        return attempt

    def conclude(self, attempt: Attempt, result: Any, error: BaseException | None) -> Outcome:  # noqa: C901  one branch for each way to end
        """What becomes of an attempt that ended with `result` or `error`, perhaps after an interruption."""
        took_ms = (time.monotonic() - attempt.started) * 1000
        alone = (attempt.plain and attempt.chain is None) or not attempt.followed
        if error is None and alone and not self._all_heard and not attempt.policy.retention_ms:
            if self._meter is not None:
                self._meter.done(attempt.place, took_ms)
            if self._heard:
                AT_WORK.set(None)
            return DONE
        if attempt.refused is not None:
            return self._unrun(attempt.delivery, attempt.envelope, attempt.refused)
        interrupt = attempt.held.interrupt
        if interrupt is not None and error is not None and _follows(error, interrupt):
            error = interrupt.with_traceback(error.__traceback__)
        self.out_of_memory = self.out_of_memory or isinstance(error, MemoryError)
        envelope = attempt.envelope
        outcome = decide(envelope, attempt.policy, error, self.now_ms(), random.random)
        ended_as = next((word for kind, word in _ENDED_AS if isinstance(error, kind)), "")
        if isinstance(outcome, Release) and attempt.lines.stop_asked(attempt.held):
            outcome, ended_as = stopped(outcome), "stopped"
        elif isinstance(error, TurnedAway) and error.settled is not None:
            attempt.lines.afterwards.add(attempt.held, error.settled)
        changed = attempt.chain.changed() if attempt.chain is not None and error is None else b""
        if changed and isinstance(outcome, Ack):
            outcome = replace(outcome, chain=changed)
        if result is not None and isinstance(outcome, Ack) and outcome.retention_ms:
            outcome = replace(outcome, result=encoded(envelope, result, self._keyring))
        attempt.held.ended_as = ended_as
        if outcome is not DONE:
            outcome = self._dated(outcome, attempt.delivery, self.now_ms() - round(took_ms))
        if self._meter is not None:
            self._meter.ended(attempt.place, ended_as or told_as(outcome)[0], took_ms)
        if self._heard:
            self._tell(ended(attempt.delivery, envelope, outcome, took_ms, ended_as), attempt.at_work)
        return outcome

    def _opened(self, delivery: Delivery, envelope: Envelope, policy: Policy) -> Envelope | Outcome:
        """The envelope with its payload decrypted; or what becomes of a job that cannot be.

        A worker that has the key may come, so an unknown one costs an attempt. What was tampered with stays so.
        """
        try:
            return open_data(self._keyring, envelope, delivery.id)
        except DelayqError as error:
            said = Fail(error) if isinstance(error, BrokenSeal) else error
            return decide(envelope, policy, said, self.now_ms(), random.random)

    def _dated(self, outcome: Outcome, delivery: Delivery, started_ms: int | None) -> Outcome:
        return dated(outcome, ran(delivery.due_ms, delivery.entry, started_ms, delivery.recoveries))

    def _unrun(self, delivery: Delivery, envelope: Envelope | None, outcome: Outcome, ended_as: str = "") -> Outcome:
        """An attempt that ends without having started."""
        outcome = self._dated(outcome, delivery, None)
        if self._meter is not None:
            place = self._meter.place(delivery.queue, envelope.name if envelope else "")
            self._meter.ended(place, ended_as or told_as(outcome)[0], None)
        if self._heard:
            at_work = partial(at_work_on, delivery, envelope, self.worker)
            self._tell(ended(delivery, envelope, outcome, 0.0, ended_as), at_work)
        return outcome

    def _tell(self, event: Event, at_work: Callable[[], AtWork] | None) -> None:
        """Tell listeners, whose log lines say of which job; nothing is at work here afterwards."""
        AT_WORK.set(at_work)
        self._listeners.tell(event)
        AT_WORK.set(None)


_ENDED_AS: Final = ((JobCancelled, "stopped"), (Discard, "discarded"), (WorkerShutdown, "interrupted"))


def _follows(error: BaseException, interrupt: BaseException) -> bool:
    """Whether the attempt ended with `error` because of the interrupt.

    When the worker stops, that is so for any error of the handler: a retry elsewhere shows whether it has another
    reason.
    """
    if isinstance(error, JobInterrupted | asyncio.CancelledError):
        return True
    return isinstance(interrupt, WorkerShutdown) and not isinstance(error, JobSignal)
