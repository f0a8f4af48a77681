"""One attempt, step by step, whoever runs it: read the envelope, may it start?, then what became of it.

Nothing a handler does gets past here: whatever it raises becomes an outcome.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable
from typing import Any

import msgspec

from delayq.core import envelope as envelopes
from delayq.core.envelope import Envelope
from delayq.core.errors import BadEnvelope, UnknownJob
from delayq.core.events import JobEnded, JobStarted
from delayq.core.interrupts import JobCancelled, JobInterrupted
from delayq.core.outcome import Ack, GiveUp, Outcome, Policy, Release, before_start, decide
from delayq.drivers.base import Delivery
from delayq.jobs.context import JobContext
from delayq.jobs.function import JobFunction
from delayq.jobs.registry import Registry
from delayq.worker.policies import Policies
from delayq.worker.teller import Teller

log = logging.getLogger("delayq.worker")


class Attempt:
    """A delivery that may start: its envelope read, its handler found."""

    __slots__ = ("delivery", "envelope", "handler", "policy", "started")

    def __init__(self, delivery: Delivery, envelope: Envelope, handler: JobFunction[..., Any], policy: Policy) -> None:
        self.delivery = delivery
        self.envelope = envelope
        self.handler = handler
        self.policy = policy
        self.started = 0.0

    def call(self) -> Any:
        """Call the handler; for an async one, the coroutine to await."""
        return self.handler.run(self.envelope.data, self._context)

    def limit_s(self, now_ms: int) -> float:
        """Seconds it may take, by its timeout or its deadline, whichever ends first; 0 = for ever."""
        limit_ms = self.policy.timeout_ms
        if self.policy.deadline_ms is not None:
            left_ms = max(1, self.policy.deadline_ms - now_ms)
            limit_ms = min(limit_ms, left_ms) if limit_ms else left_ms
        return limit_ms / 1000

    def _context(self) -> JobContext:
        delivery, envelope = self.delivery, self.envelope
        return JobContext(
            id=delivery.id,
            name=envelope.name,
            queue=delivery.queue,
            attempt=envelope.attempts + 1,
            tries=self.policy.tries,
            recoveries=delivery.recoveries,
            due_ms=delivery.due_ms,
            token=delivery.entry,
            headers=envelope.headers or {},
            tags=tuple(envelope.tags or ()),
        )


class Attempts:
    """Makes attempts of deliveries and outcomes of attempts. `now_ms` is the backend's clock as last seen."""

    def __init__(self, registry: Registry, policies: Policies, now_ms: Callable[[], int], tell: Teller) -> None:
        self.now_ms = now_ms
        self._registry = registry
        self._policies = policies
        self._tell = tell

    def prepare(self, delivery: Delivery) -> Attempt | Outcome:
        """The attempt to run; or the outcome, when there is nothing to run."""
        try:
            envelope = envelopes.decode(delivery.raw)
        except BadEnvelope as error:
            return GiveUp(0, 0, error)
        now_ms = self.now_ms()
        try:
            handler = self._registry.get(envelope.name)
        except UnknownJob as error:
            return decide(envelope, self._policies.of(envelope, None), error, now_ms, random.random)
        policy = self._policies.of(envelope, handler)
        refused = before_start(envelope, policy, now_ms)
        if refused is not None:
            return refused
        attempt = Attempt(delivery, envelope, handler, policy)
        if self._tell:
            attempt.started = time.perf_counter()
            self._tell(_started(attempt, now_ms))
        return attempt

    def conclude(
        self, attempt: Attempt, result: Any, error: BaseException | None, interrupt: BaseException | None
    ) -> Outcome:
        """What becomes of an attempt that ended with `result` or `error`, after an `interrupt` if there was one."""
        if interrupt is not None and isinstance(error, JobInterrupted | asyncio.CancelledError):
            error = interrupt.with_traceback(error.__traceback__)
        envelope = attempt.envelope
        outcome = decide(envelope, attempt.policy, error, self.now_ms(), random.random)
        if result is not None and isinstance(outcome, Ack) and outcome.retention_ms:
            outcome = Ack(outcome.retention_ms, _encoded(envelope, result))
        if self._tell:
            self._tell(_ended(attempt, outcome, error))
        return outcome


def _started(attempt: Attempt, now_ms: int) -> JobStarted:
    delivery, envelope = attempt.delivery, attempt.envelope
    late_ms = now_ms - delivery.due_ms
    return JobStarted(delivery.id, envelope.name, delivery.queue, envelope.attempts + 1, delivery.due_ms, late_ms)


def _ended(attempt: Attempt, outcome: Outcome, error: BaseException | None) -> JobEnded:
    envelope = attempt.envelope
    took_ms = (time.perf_counter() - attempt.started) * 1000
    word, cause = _word(outcome, error)
    return JobEnded(
        attempt.delivery.id, envelope.name, attempt.delivery.queue, envelope.attempts + 1, word, took_ms, cause
    )


def _word(outcome: Outcome, error: BaseException | None) -> tuple[str, BaseException | None]:
    if isinstance(error, JobCancelled):
        return "cancelled", None
    if isinstance(outcome, Ack):
        return "done", None
    if isinstance(outcome, Release):
        return ("snoozed" if outcome.error is None else "released"), outcome.error
    return "failed", outcome.error


def _encoded(envelope: Envelope, result: Any) -> bytes:
    """A result as JSON. The work is done by then, so one that cannot be kept is said and not retried."""
    try:
        return msgspec.json.encode(result)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        log.warning("job %s (%s): its result cannot be kept as JSON: %s", envelope.id, envelope.name, error)
        return b""
