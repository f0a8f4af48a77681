"""Runs an envelope here: read, may it start?, handler, decide, `failed`. What a worker does, without one.

`Rules` say how it is tried: in one attempt, as a sync connection does, or as a worker would, as tests do.
"""

from __future__ import annotations

import asyncio
import inspect
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from delayq.core import envelope as envelopes
from delayq.core.backoff import DEFAULT
from delayq.core.envelope import Envelope
from delayq.core.errors import InvalidInput
from delayq.core.events import JobEnded, JobStarted
from delayq.core.keyring import NO_KEYS
from delayq.core.limiting import Limits, Unlock, Who
from delayq.core.options import Options
from delayq.core.outcome import Ack, Outcome, Policy, before_start, decide, policy_of, told_as
from delayq.core.sealing import open_data
from delayq.core.signals import Discard, JobSignal
from delayq.core.spec import prepare
from delayq.core.unique import Until, until_of, word_of
from delayq.drivers.base import Delivery
from delayq.drivers.sync import Ran
from delayq.jobs.context import JobContext
from delayq.jobs.coordinated import Coordinator, RunningBatch, RunningChain, batch_of
from delayq.jobs.coordination import ManagerCoordinator
from delayq.jobs.failing import atell_failed, tell_failed
from delayq.jobs.handler import Handler
from delayq.jobs.message import Parcel
from delayq.jobs.middleware.surrounded import Surrounded
from delayq.jobs.registry import current
from delayq.jobs.results import encoded
from delayq.jobs.talk import Talk
from delayq.jobs.unlocking import unlocking

if TYPE_CHECKING:
    from delayq.manager import Manager

_ONE_ATTEMPT = Policy(tries=1, backoff=DEFAULT)


def wall_ms() -> int:
    """This machine's clock."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class Rules:
    """How jobs are tried here, by which clock, and with which jitter.

    Without a `fallback` each has one attempt, whatever its tries: nobody is there to try again later. With one, it is
    decided as a worker with that policy would. Without `limits` nothing is limited.
    """

    fallback: Policy | None = None
    now_ms: Callable[[], int] = wall_ms
    rand: Callable[[], float] = random.random
    limits: Limits | None = None


def envelope_of(parcel: Parcel, options: Options) -> bytes:
    """The bytes that would travel; as they stay here, they are not encrypted."""
    return prepare(parcel.spec, replace(options, travels=False), wall_ms()).envelope


class LocalRunner:
    """Runs jobs of the current registry. Raises `BadEnvelope` and `UnknownJob`; all else is in the answer.

    What runs here never travelled, so an encrypted envelope that comes all the same raises `UnknownKey`. `manager`
    gives the manager whose connections a running job uses when it adds to its chain or its batch.
    """

    def __init__(self, manager: Callable[[], Manager], rules: Rules = Rules()) -> None:
        self._coordinator = ManagerCoordinator(manager)
        self._rules = rules

    def run(self, envelope: bytes, delivery: Delivery | None = None) -> Ran:
        """Run it in this thread. Inside a running event loop an async handler is refused with `InvalidInput`.

        `delivery`: the reservation it came with, for those who have one.
        """
        attempt = _Attempt(envelope, self._rules, delivery, self._coordinator)
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
        outcome = attempt.decided(result, error)
        tell_failed(attempt.handler, attempt.envelope, outcome, _awaited)
        return Ran(outcome, result, error)

    async def arun(self, envelope: bytes, delivery: Delivery | None = None) -> Ran:
        """Run it in this event loop; a plain handler in a thread, with the caller's context variables."""
        attempt = _Attempt(envelope, self._rules, delivery, self._coordinator)
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
        outcome = attempt.decided(result, error)
        await atell_failed(attempt.handler, attempt.envelope, outcome)
        return Ran(outcome, result, error)


class _Attempt:
    """One envelope on its way through; `refused` when it may not start."""

    def __init__(self, raw: bytes, rules: Rules, delivery: Delivery | None, coordinator: Coordinator) -> None:
        envelope = envelopes.decode(raw)
        self.envelope: Envelope = open_data(NO_KEYS, envelope, envelope.id)
        self.handler: Handler = current().get(self.envelope.name)
        self._rules = rules
        self._delivery = delivery
        self._policy = policy_of(self.envelope, self.handler.options.over(rules.fallback or _ONE_ATTEMPT))
        if rules.fallback is None:
            self._policy = replace(self._policy, tries=1, retry_until_ms=None, max_exceptions=None, retention_ms=0)
        self.refused = before_start(self.envelope, self._policy, rules.now_ms())
        self._coordinator = coordinator
        self._chain = RunningChain(self.envelope, coordinator)
        self._batch: RunningBatch | None = None
        self._events = current().events
        self._started = time.perf_counter()
        self._ended_as = ""
        if self.refused is not None:
            self._tell_end(self.refused)
        elif self._events.hears(JobStarted):
            envelope, now_ms = self.envelope, rules.now_ms()
            due_ms = delivery.due_ms if delivery else now_ms
            queue, attempt = delivery.queue if delivery else envelope.queue, envelope.attempts + 1
            self._events.tell(JobStarted(envelope.id, envelope.name, queue, attempt, due_ms, now_ms - due_ms))

    def call(self) -> Any:
        handler, lock, delivery, limits = self.handler, self.envelope.unique, self._delivery, self._rules.limits
        if lock is not None and delivery is not None and limits is not None and until_of(lock) is Until.START:
            who = Who(delivery.queue, delivery.id, delivery.entry)
            handler = unlocking(handler, Unlock(who, word_of(lock)), limits)
        return handler.run(self.envelope.data, self._context)

    def call_apart(self) -> Any:
        """In a thread of its own: async middleware around a plain handler is awaited there, not beside others."""
        result = self.call()
        surrounded = isinstance(self.handler, Surrounded) and inspect.iscoroutine(result)
        return asyncio.run(_as_coroutine(result)) if surrounded else result

    def decided(self, result: Any, error: BaseException | None) -> Outcome:
        policy = self._policy
        if self._rules.fallback is None and isinstance(error, JobSignal):
            # A job that asks to be tried again has not failed; there is only nobody who does it.
            policy = replace(policy, tries=0)
        outcome = decide(self.envelope, policy, error, self._rules.now_ms(), self._rules.rand)
        if error is None and isinstance(outcome, Ack) and (changed := self._chain.changed()):
            outcome = replace(outcome, chain=changed)
        if result is not None and isinstance(outcome, Ack) and outcome.retention_ms:
            outcome = replace(outcome, result=encoded(self.envelope, result, NO_KEYS))
        self._ended_as = "discarded" if isinstance(error, Discard) else ""
        self._tell_end(outcome)
        return outcome

    def _tell_end(self, outcome: Outcome) -> None:
        """Let those who listen here hear how it ended."""
        if self._events.hears(JobEnded):
            envelope, took_ms = self.envelope, (time.perf_counter() - self._started) * 1000
            word, error = told_as(outcome) if self._ended_as == "" else (self._ended_as, None)
            queue, attempt = self._delivery.queue if self._delivery else envelope.queue, envelope.attempts + 1
            self._events.tell(JobEnded(envelope.id, envelope.name, queue, attempt, word, took_ms, error))

    def _context(self) -> JobContext:
        envelope, delivery = self.envelope, self._delivery
        self._batch = self._batch or batch_of(envelope, self._coordinator)
        return JobContext(
            id=envelope.id,
            name=envelope.name,
            queue=delivery.queue if delivery else envelope.queue,
            attempt=envelope.attempts + 1,
            tries=self._policy.tries,
            recoveries=delivery.recoveries if delivery else 0,
            due_ms=delivery.due_ms if delivery else self._rules.now_ms(),
            token=delivery.entry if delivery else "",
            headers=envelope.headers or {},
            tags=tuple(envelope.tags or ()),
            talk=Talk(limits=self._rules.limits if delivery else None),
            chain=self._chain,
            batch=self._batch,
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
