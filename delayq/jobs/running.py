"""Runs an envelope here: read, may it start?, handler, decide, `failed`. What a worker does, without one."""

from __future__ import annotations

import asyncio
import inspect
import random
import time
from collections.abc import Awaitable
from dataclasses import replace
from typing import Any

from delayq.core import envelope as envelopes
from delayq.core.backoff import DEFAULT
from delayq.core.envelope import Envelope
from delayq.core.errors import InvalidInput
from delayq.core.events import JobEnded, JobStarted
from delayq.core.options import Options
from delayq.core.outcome import Outcome, Policy, before_start, decide, policy_of, told_as
from delayq.core.signals import JobSignal
from delayq.core.spec import prepare
from delayq.drivers.sync import Ran
from delayq.jobs.context import JobContext
from delayq.jobs.failing import atell_failed, tell_failed
from delayq.jobs.handler import Handler
from delayq.jobs.middleware.surrounded import Surrounded
from delayq.jobs.registry import current
from delayq.jobs.sending import Parcel

_FALLBACK = Policy(tries=1, backoff=DEFAULT)


def envelope_of(parcel: Parcel, options: Options) -> bytes:
    """The bytes that would travel."""
    return prepare(parcel.spec, options, _now_ms()).envelope


class LocalRunner:
    """Runs jobs of the current registry. One attempt, whatever the tries: nobody is there to try again later."""

    def run(self, envelope: bytes) -> Ran:
        """Run it in this thread. Inside a running event loop an async handler is refused with `InvalidInput`."""
        attempt = _Attempt(envelope)
        if attempt.handler.is_async:
            _refuse_inside_a_loop()
        if attempt.refused is not None:
            tell_failed(attempt.handler, attempt.envelope, attempt.refused, _awaited)
            return Ran(attempt.refused, None, attempt.refused.error)
        result, error = None, None
        try:
            result = attempt.call()
            if inspect.isawaitable(result):
                result = _awaited(result)
        except Exception as raised:  # noqa: BLE001  (what a handler raises decides, here as on a worker)
            error = raised
        outcome = attempt.decided(error)
        attempt.tell_end(outcome)
        tell_failed(attempt.handler, attempt.envelope, outcome, _awaited)
        return Ran(outcome, result, error)

    async def arun(self, envelope: bytes) -> Ran:
        """Run it in this event loop; a plain handler in a thread, with the caller's context variables."""
        attempt = _Attempt(envelope)
        if attempt.refused is not None:
            await atell_failed(attempt.handler, attempt.envelope, attempt.refused)
            return Ran(attempt.refused, None, attempt.refused.error)
        result, error = None, None
        try:
            result = attempt.call() if attempt.handler.is_async else await asyncio.to_thread(attempt.call_apart)
            if inspect.isawaitable(result):
                result = await result
        except Exception as raised:  # noqa: BLE001
            error = raised
        outcome = attempt.decided(error)
        attempt.tell_end(outcome)
        await atell_failed(attempt.handler, attempt.envelope, outcome)
        return Ran(outcome, result, error)


class _Attempt:
    """One envelope on its way through; `refused` when it may not start."""

    def __init__(self, raw: bytes) -> None:
        self.envelope: Envelope = envelopes.decode(raw)
        self.handler: Handler = current().get(self.envelope.name)
        declared = policy_of(self.envelope, self.handler.options.over(_FALLBACK))
        self._policy = replace(declared, tries=1, retry_until_ms=None, max_exceptions=None, retention_ms=0)
        self.refused = before_start(self.envelope, self._policy, _now_ms())
        self._events = current().events
        self._started = time.perf_counter()
        if self.refused is not None:
            self.tell_end(self.refused)
        elif self._events.hears(JobStarted):
            envelope = self.envelope
            self._events.tell(JobStarted(envelope.id, envelope.name, envelope.queue, 1, _now_ms(), 0))

    def call(self) -> Any:
        return self.handler.run(self.envelope.data, self._context)

    def call_apart(self) -> Any:
        """In a thread of its own: async middleware around a plain handler is awaited there, not beside others."""
        result = self.call()
        surrounded = isinstance(self.handler, Surrounded) and inspect.iscoroutine(result)
        return asyncio.run(_as_coroutine(result)) if surrounded else result

    def decided(self, error: BaseException | None) -> Outcome:
        # A job that asks to be tried again has not failed; there is only nobody who does it.
        policy = replace(self._policy, tries=0) if isinstance(error, JobSignal) else self._policy
        return decide(self.envelope, policy, error, _now_ms(), random.random)

    def tell_end(self, outcome: Outcome) -> None:
        """Let those who listen here hear how it ended."""
        if self._events.hears(JobEnded):
            envelope, took_ms = self.envelope, (time.perf_counter() - self._started) * 1000
            word, error = told_as(outcome)
            self._events.tell(JobEnded(envelope.id, envelope.name, envelope.queue, 1, word, took_ms, error))

    def _context(self) -> JobContext:
        envelope = self.envelope
        return JobContext(
            id=envelope.id,
            name=envelope.name,
            queue=envelope.queue,
            attempt=envelope.attempts + 1,
            tries=1,
            recoveries=0,
            due_ms=_now_ms(),
            token="",
            headers=envelope.headers or {},
            tags=tuple(envelope.tags or ()),
        )


def _awaited(awaitable: Awaitable[Any]) -> Any:
    """The result of a coroutine, where no event loop runs."""
    try:
        _refuse_inside_a_loop()
    except InvalidInput:
        if inspect.iscoroutine(awaitable):
            awaitable.close()
        raise
    return asyncio.run(_as_coroutine(awaitable))


def _refuse_inside_a_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise InvalidInput(
        "An async handler cannot be run by a blocking call inside an event loop.",
        hint="Use await job.adispatch_sync() or await job.adispatch().",
    )


async def _as_coroutine(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
