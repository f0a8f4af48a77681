"""Runs one delivery and turns whatever happens into an outcome. Nothing a handler does gets past here.

The order is a straight line: read the envelope, find the handler, may it start?, run, decide.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from delayq.core import envelope as envelopes
from delayq.core.envelope import Envelope
from delayq.core.errors import BadEnvelope, UnknownJob
from delayq.core.events import JobEnded, JobStarted, Listener
from delayq.core.outcome import Ack, GiveUp, Outcome, Policy, Release, before_start, decide, policy_of
from delayq.drivers.base import Delivery
from delayq.jobs.context import JobContext
from delayq.jobs.function import JobFunction
from delayq.jobs.registry import Registry
from delayq.worker.stop import StopNow

log = logging.getLogger("delayq.worker")


class JobRunner:
    """Runs deliveries one at a time. `now_ms` is the backend's clock as last seen."""

    def __init__(
        self, registry: Registry, fallback: Policy, now_ms: Callable[[], int], listeners: Sequence[Listener] = ()
    ) -> None:
        self._registry = registry
        self._fallback = fallback
        self._now_ms = now_ms
        self._listeners = tuple(listeners)
        self._policies: dict[str, Policy] = {}
        self._loop: asyncio.Runner | None = None

    def run(self, delivery: Delivery) -> Outcome:
        """What becomes of the delivery. Only `StopNow` comes out as an exception."""
        try:
            envelope = envelopes.decode(delivery.raw)
        except BadEnvelope as error:
            return GiveUp(0, 0, error)
        try:
            handler = self._registry.get(envelope.name)
        except UnknownJob as error:
            return decide(envelope, self._lay_over(envelope, self._fallback), error, self._now_ms(), random.random)
        policy = self._lay_over(envelope, self._policy_of(handler))
        refused = before_start(envelope, policy, self._now_ms())
        if refused is not None:
            return refused
        return self._attempt(delivery, envelope, handler, policy)

    def close(self) -> None:
        """End the event loop, if an async handler made one necessary."""
        if self._loop is not None:
            self._loop.close()
            self._loop = None

    def _attempt(
        self, delivery: Delivery, envelope: Envelope, handler: JobFunction[..., Any], policy: Policy
    ) -> Outcome:
        started = time.perf_counter()
        if self._listeners:
            self._tell_start(delivery, envelope)
        error: BaseException | None = None
        result: Any = None
        try:
            result = handler.run(envelope.data, lambda: _context(delivery, envelope, policy))
            if handler.is_async:
                result = self._await(result)
        except StopNow:
            raise
        except BaseException as raised:  # noqa: BLE001  (a handler may raise anything; it costs an attempt, not the worker)
            error = raised
        outcome = decide(envelope, policy, error, self._now_ms(), random.random)
        if isinstance(outcome, Ack) and outcome.retention_ms and result is not None:
            outcome = Ack(outcome.retention_ms, _encoded(envelope, result))
        if self._listeners:
            self._tell_end(delivery, envelope, outcome, time.perf_counter() - started)
        return outcome

    def _await(self, awaitable: Any) -> Any:
        if self._loop is None:
            self._loop = asyncio.Runner()
        return self._loop.run(awaitable)

    def _policy_of(self, handler: JobFunction[..., Any]) -> Policy:
        """The handler's wishes over the worker's defaults; worked out once for each name."""
        policy = self._policies.get(handler.name)
        if policy is None:
            wishes, base = handler.options, self._fallback
            policy = Policy(
                tries=base.tries if wishes.tries is None else wishes.tries,
                backoff=base.backoff if wishes.backoff is None else wishes.backoff,
                retention_ms=base.retention_ms if wishes.retention_ms is None else wishes.retention_ms,
            )
            self._policies[handler.name] = policy
        return policy

    def _lay_over(self, envelope: Envelope, policy: Policy) -> Policy:
        try:
            return policy_of(envelope, policy)
        except BadEnvelope:  # a backoff this version cannot read: the rest of the envelope still counts
            log.warning("job %s: its backoff %r cannot be read; the default is used", envelope.id, envelope.backoff)
            return policy_of(msgspec.structs.replace(envelope, backoff=None), policy)

    def _tell_start(self, delivery: Delivery, envelope: Envelope) -> None:
        late_ms = self._now_ms() - delivery.due_ms
        event = JobStarted(delivery.id, envelope.name, delivery.queue, envelope.attempts + 1, delivery.due_ms, late_ms)
        for listener in self._listeners:
            listener(event)

    def _tell_end(self, delivery: Delivery, envelope: Envelope, outcome: Outcome, took_s: float) -> None:
        word, error = _word(outcome)
        attempt = envelope.attempts + 1
        event = JobEnded(delivery.id, envelope.name, delivery.queue, attempt, word, took_s * 1000, error)
        for listener in self._listeners:
            listener(event)


def _word(outcome: Outcome) -> tuple[str, BaseException | None]:
    if isinstance(outcome, Ack):
        return "done", None
    if isinstance(outcome, Release):
        return ("snoozed" if outcome.error is None else "released"), outcome.error
    return "failed", outcome.error


def _context(delivery: Delivery, envelope: Envelope, policy: Policy) -> JobContext:
    return JobContext(
        id=delivery.id,
        name=envelope.name,
        queue=delivery.queue,
        attempt=envelope.attempts + 1,
        tries=policy.tries,
        recoveries=delivery.recoveries,
        due_ms=delivery.due_ms,
        token=delivery.entry,
        headers=envelope.headers or {},
        tags=tuple(envelope.tags or ()),
    )


def _encoded(envelope: Envelope, result: Any) -> bytes:
    """A result as JSON. The work is done by then, so one that cannot be kept is said and not retried."""
    try:
        return msgspec.json.encode(result)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        log.warning("job %s (%s): its result cannot be kept as JSON: %s", envelope.id, envelope.name, error)
        return b""
