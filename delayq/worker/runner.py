"""Runs one delivery and turns whatever happens into an outcome. Nothing a handler does gets past here.

The order is a straight line: read the envelope, find the handler, may it start?, run, decide.
"""

from __future__ import annotations

import inspect
import logging
import random
import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec

from delayq.core import envelope as envelopes
from delayq.core.envelope import Envelope
from delayq.core.errors import BadEnvelope, UnknownJob
from delayq.core.events import JobEnded, JobStarted
from delayq.core.outcome import Ack, GiveUp, Outcome, Policy, Release, before_start, decide, stopped
from delayq.drivers.base import Delivery
from delayq.jobs.context import JobContext
from delayq.jobs.function import JobFunction
from delayq.jobs.registry import Registry
from delayq.worker.coroutines import Coroutines
from delayq.worker.listeners import Listeners
from delayq.worker.policies import Policies
from delayq.worker.stop import StopNow, StopSignals

log = logging.getLogger("delayq.worker")


class JobRunner:
    """Runs deliveries one at a time. `now_ms` is the backend's clock as last seen.

    `out_of_memory` is set when a handler ran out of it: what is left of the process is not to be trusted for long.
    """

    def __init__(
        self,
        registry: Registry,
        fallback: Policy,
        now_ms: Callable[[], int],
        signals: StopSignals,
        listeners: Listeners,
    ) -> None:
        self.out_of_memory = False
        self._registry = registry
        self._policies = Policies(fallback)
        self._now_ms = now_ms
        self._signals = signals
        self._listeners = listeners
        self._heard = bool(listeners)
        self._coroutines = Coroutines()
        self._lock = threading.Lock()
        self._current: Delivery | None = None
        self._called_off = False
        self._cancelled = False

    def run(self, delivery: Delivery) -> Outcome:
        """What becomes of the delivery. Only `StopNow` comes out as an exception."""
        started = time.perf_counter() if self._heard else 0.0
        try:
            envelope = envelopes.decode(delivery.raw)
        except BadEnvelope as error:
            return self._ended(delivery, None, GiveUp(0, 0, error), started)
        try:
            handler = self._registry.get(envelope.name)
        except UnknownJob as error:
            policy = self._policies.of(envelope, None)
            outcome = decide(envelope, policy, error, self._now_ms(), random.random)
            return self._ended(delivery, envelope, outcome, started)
        policy = self._policies.of(envelope, handler)
        if envelope.attempts or policy.timed:  # else nothing can speak against it
            refused = before_start(envelope, policy, self._now_ms())
            if refused is not None:
                return self._ended(delivery, envelope, refused, started)
        if self._heard:
            self._tell_start(delivery, envelope)
        raised, result = self._attempt(delivery, envelope, handler, policy)
        now_ms = 0 if raised is None else self._now_ms()  # a success is one at any time
        outcome = decide(envelope, policy, raised, now_ms, random.random)
        if isinstance(outcome, Ack) and outcome.retention_ms and result is not None:
            outcome = Ack(outcome.retention_ms, _encoded(envelope, result))
        return self._ended(delivery, envelope, outcome, started)

    def call_off(self, asked: frozenset[tuple[str, str]]) -> None:
        """The job that runs is asked to stop if it is one of these, (queue, id); an async one is cancelled."""
        with self._lock:
            current = self._current
            if current is not None and (current.queue, current.id) in asked:
                self._called_off = True
                self._cancelled = self._cancelled or self._coroutines.cancel()

    def close(self) -> None:
        """End the event loop, if an async handler made one necessary."""
        self._coroutines.close()

    def _attempt(
        self, delivery: Delivery, envelope: Envelope, handler: JobFunction[..., Any], policy: Policy
    ) -> tuple[BaseException | None, Any]:
        """Run the handler: its error, or its result."""
        self._called_off, self._cancelled, self._current = False, False, delivery
        self._signals.breakable = True
        try:
            result = handler.run(envelope.data, lambda: self._context(delivery, envelope, policy))
            if result is not None and inspect.isawaitable(result):
                result = self._coroutines.run(result)
            return None, result
        except StopNow:
            raise
        except BaseException as error:  # noqa: BLE001  (a handler may raise anything; it costs an attempt, not the worker)
            self.out_of_memory = self.out_of_memory or isinstance(error, MemoryError)
            return error, None
        finally:
            self._signals.breakable = False
            with self._lock:
                self._current = None

    def _context(self, delivery: Delivery, envelope: Envelope, policy: Policy) -> JobContext:
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
            stop_asked=lambda: self._called_off and self._current is delivery,
        )

    def _tell_start(self, delivery: Delivery, envelope: Envelope) -> None:
        late_ms = self._now_ms() - delivery.due_ms
        attempt = envelope.attempts + 1
        self._listeners.tell(JobStarted(delivery.id, envelope.name, delivery.queue, attempt, delivery.due_ms, late_ms))

    def _ended(self, delivery: Delivery, envelope: Envelope | None, outcome: Outcome, started: float) -> Outcome:
        called_off = self._called_off and isinstance(outcome, Release)
        self._called_off = False
        if self._heard:
            word, error = _word(outcome)
            name, attempts = (envelope.name, envelope.attempts) if envelope else ("", 0)
            took_ms = (time.perf_counter() - started) * 1000
            word = "stopped" if called_off else word
            self._listeners.tell(JobEnded(delivery.id, name, delivery.queue, attempts + 1, word, took_ms, error))
        return stopped(outcome) if called_off else outcome


def _word(outcome: Outcome) -> tuple[str, BaseException | None]:
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
