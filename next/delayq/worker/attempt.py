"""One attempt of a job, from the envelope to the settlement.

An attempt is one run of the handler of a job. This module reads the envelope (the job as JSON), checks whether the job
may start, calls the handler, and turns the end of the attempt into an outcome and then into a settlement. The
settlement is the value that reports the outcome to the backend. `core/outcome.py` decides which outcome it is.
"""

import asyncio
import inspect
import random
from collections.abc import Awaitable, Callable
from contextvars import Context, ContextVar, copy_context
from dataclasses import replace
from functools import partial
from types import FunctionType, MethodType
from typing import Any, ClassVar, Final

import msgspec

from delayq.backends.values import Acked, Delivery, DeliveryRef, Failed, Released, Settlement, Stopped
from delayq.core import envelope as envelopes
from delayq.core import failure as failures
from delayq.core.backoff import Computed, runs_no_function
from delayq.core.chain import Chain
from delayq.core.control_flow import JobTimedOut, Snooze
from delayq.core.encryption import KeyRing, is_encrypted, payload_of, seal
from delayq.core.envelope import ABSENT, SURELY_SHORT, Envelope
from delayq.core.errors import BackendError, UnknownJob, UnreadableEnvelope
from delayq.core.outcome import Done, GiveUp, Outcome, Policy, RunAgain, before_start, decide, policy_of
from delayq.core.results import encode_result
from delayq.core.shards import queue_of
from delayq.core.unique import to_free_at_start
from delayq.jobs.context import JobContext
from delayq.jobs.django_connections import Handlers
from delayq.jobs.handlers import Handler, call_failed_hook, checked_result
from delayq.jobs.own_loop import run_in_own_loop
from delayq.jobs.wrapped import WrappedHandler
from delayq.worker.attempt_log import log_end, log_failure, log_retry, logger
from delayq.worker.shared_memory import Part

_STANDARD: Final = Policy()

HOOK_LIMIT: Final = 60.0
"""Time limit of the hook `failed` of a job whose handler may not start (see `Attempt.refusal`), in seconds."""


UNLOCK_PAUSE: Final = "1s"
"""Delay of a job whose unique key could not be freed, before it runs again."""


class Attempt(msgspec.Struct, gc=False):
    """One attempt.

    `job`: the payload, as `Handler.read` returned it. `limit`: how many seconds the attempt may run; None = no limit.
    `context`: the context variables of the attempt. `refusal`: the outcome of a job whose deadline or `retry_until` has
    passed, or whose tries are used up; only its hook `failed` is called; None = the handler is called. `free_key`:
    frees the unique key of the job, right before the handler is called; None = there is no key to free. `is_logged`:
    True after the failure of the job was logged.
    """

    delivery: Delivery
    envelope: Envelope
    handler: Handler
    policy: Policy
    job: Any
    limit: float | None
    context: Context
    refusal: GiveUp | None = None
    job_context: JobContext | None = None
    free_key: Callable[[], None] | None = None
    is_logged: bool = False

    is_listened: ClassVar[bool] = False
    """True if `tell_ended` must be called at the end."""

    async def acall(self) -> Any:
        """Call and await a handler that is a coroutine function. The caller runs this in `context`."""
        if self.refusal is not None:
            raise self.refusal.error
        if self.free_key is None:
            result = await self.handler.call(self.job, self.job_context)
        elif isinstance(self.handler, WrappedHandler):
            result = await self.handler.call_after(self.job, self.job_context, self.free_key)
        else:
            await asyncio.to_thread(self.free_key)
            result = await self.handler.call(self.job, self.job_context)
        return result if result is None else checked_result(result)

    def call(self) -> Any:
        """Call a handler that is a plain function, in the context of this attempt.

        If the function returns an awaitable, for example because a decorator hides a coroutine function, await it here.
        """
        if self.refusal is not None:
            raise self.refusal.error
        if self.free_key is None:
            result = self.context.run(self.handler.call, self.job, self.job_context)
        elif isinstance(self.handler, WrappedHandler):
            result = self.context.run(self.handler.call_after, self.job, self.job_context, self.free_key)
        else:
            self.free_key()
            result = self.context.run(self.handler.call, self.job, self.job_context)
        if result is None:
            return None
        if inspect.isawaitable(result):
            result = self.context.run(run_in_own_loop, result)
        return checked_result(result)

    def tell_ended(self, settlement: Settlement, outcome: Outcome | None, error: BaseException | None) -> None:
        """Emit JobEnded; see ListenedAttempt."""


class CurrentAttempt:
    """The attempt that runs now in a thread or task, or None.

    Several attempts can share one object, because storing an attribute is cheaper than setting a context variable.
    """

    __slots__ = ("attempt",)

    def __init__(self, attempt: Attempt | None = None) -> None:
        self.attempt = attempt


current_attempt: Final[ContextVar[CurrentAttempt | None]] = ContextVar("delayq_current_attempt", default=None)


class Attempts:
    """Begins and ends attempts.

    `registry`: the handlers. `now_ms`: returns the time of the backend in epoch ms. `standard`: values for the parts of
    a policy that a job does not declare. `rand`: returns numbers from 0 up to 1, for jitter. `unlock`: frees the unique
    key of a job, see Consumer.unlock; None in a process that calls no handlers. `key_ring`: the keys of encrypted jobs;
    None = no keys. `make`: the class of the attempts.

    Each attempt runs in its own copy of the context variables, so that no job sees variables that another job has set.
    `current` is the value of `current_attempt` in these copies, unless a runner sets another value.
    """

    def __init__(
        self,
        registry: Handlers,
        *,
        now_ms: Callable[[], int],
        standard: Policy = _STANDARD,
        rand: Callable[[], float] = random.random,
        unlock: Callable[[DeliveryRef, str], bool] | None = None,
        key_ring: KeyRing | None = None,
        make: type[Attempt] = Attempt,
    ) -> None:
        self._make = make
        self._key_ring = key_ring
        self._registry = registry
        self._unlock = unlock
        self._standard = standard
        self._policies: dict[str, Policy] = {}
        self._now_ms = now_ms
        self._rand = rand
        self.current = CurrentAttempt()
        self._base = copy_context()
        self._base.run(current_attempt.set, self.current)

    def begin(self, delivery: Delivery) -> Attempt | Settlement:
        """Read a delivery. Return an attempt, or a settlement if nothing is to be called.

        A job may not start if its envelope is unreadable, its handler is unknown, its payload cannot be decrypted or
        does not fit, a cancel asked it to stop, its deadline or `retry_until` has passed, or its tries are used up. If
        the cause is the deadline, `retry_until` or the tries, and the job has a hook `failed`, return an attempt that
        only calls the hook.
        """
        try:
            envelope = envelopes.decode(delivery.envelope)
            if len(delivery.id) > SURELY_SHORT:
                envelopes.check_id_fits(delivery.id)
        except UnreadableEnvelope as error:
            return self._unreadable(delivery, error)
        if delivery.is_stopping:
            return Stopped(delivery.queue, delivery.id, delivery.entry)
        policy = self._standard
        try:
            handler = self._registry.get(envelope.name)
            policy = policy_of(envelope, self._declared(handler))
            refusal = before_start(envelope, policy, self._now_ms)
            if refusal is not None and not handler.has_failed_hook:
                return self._settlement(delivery, envelope, refusal)
            job = handler.read(envelope.data if envelope.encrypted is ABSENT else payload_of(envelope, self._key_ring))
        except UnreadableEnvelope as error:
            return self._unreadable(delivery, error)
        except BaseException as error:  # code of the application reads the payload, and may raise SystemExit
            return self._decided(delivery, envelope, policy_of(envelope, policy), error)
        limit = self._limit(policy) if refusal is None else HOOK_LIMIT
        attempt = self._make(delivery, envelope, handler, policy, job, limit, self._base.copy(), refusal)
        if envelope.unique is not None and (digest := to_free_at_start(envelope.unique)):
            attempt.free_key = partial(self._free_key, delivery, digest)
        return attempt

    def _free_key(self, delivery: Delivery, digest: str) -> None:
        """Free a unique key. Raises Snooze if the handler may not start, which costs the job no attempt."""
        assert self._unlock is not None
        try:
            if self._unlock(delivery.ref, digest):
                return
        except BackendError as error:
            logger.warning("job %s starts later, because its unique key could not be freed: %s", delivery.id, error)
            raise Snooze(UNLOCK_PAUSE) from error
        raise Snooze("0s")  # the job no longer belongs to this child, so this settlement has no effect

    def decide(self, attempt: Attempt, error: BaseException | None) -> Outcome:
        """Return the outcome of an attempt that raised `error`; None = its handler returned."""
        if attempt.refusal is not None:
            return attempt.refusal
        return decide(attempt.envelope, attempt.policy, error, now_ms=self._now_ms, rand=self._rand)

    def call_failed_hook(self, attempt: Attempt, outcome: Outcome) -> Awaitable[None] | None:
        """If the job has failed for good, call its hook `failed`. Return an awaitable if the hook is async.

        The hook is called before the job is settled. If the process dies between the two, the hook is called again
        later. In the other order, the hook might never be called. The failure is logged before the hook is called,
        because a hook that hangs is killed, and its timeout then replaces the error of the job.
        """
        if not isinstance(outcome, GiveUp) or not attempt.handler.has_failed_hook:
            return None
        log_failure(attempt.delivery, attempt.envelope, outcome)
        attempt.is_logged = True
        return call_failed_hook(
            attempt.handler, attempt.job, outcome.error, attempt.job_context, job_id=attempt.delivery.id
        )

    def settle(self, attempt: Attempt, outcome: Outcome, result: Any) -> Settlement:
        """Return the settlement of an attempt. `result`: the value that the handler returned."""
        settlement = self._settlement(attempt.delivery, attempt.envelope, outcome, result, is_logged=attempt.is_logged)
        context = attempt.job_context
        if context is None or context.used_chain is None or context.used_chain.changed is None:
            return settlement
        return _with_chain(settlement, attempt.delivery.envelope, context.used_chain.changed)

    def settle_broken(self, attempt: Attempt, outcome: Outcome | None, error: BaseException) -> Settlement:
        """Return the settlement of an attempt in which application code raised `error` after the handler had ended.

        Such code is a backoff function, the hook `failed`, or a method that the encoding of the result calls. A failed
        job stays failed. Any other job is retried with this error, or fails if it has no attempts left. The default
        backoff replaces a backoff function.
        """
        if isinstance(outcome, GiveUp):
            return self._settlement(attempt.delivery, attempt.envelope, outcome, is_logged=attempt.is_logged)
        return self._decided(attempt.delivery, attempt.envelope, self._without_function(attempt.policy), error)

    def log_end(self, attempt: Attempt, decided: Outcome | None, settlement: Settlement, seconds: float) -> None:
        """Log one line about an attempt that took `seconds`. `decided`: its outcome; None = deciding it failed."""
        log_end(attempt.delivery, attempt.envelope, decided, settlement, seconds, now_ms=self._now_ms())

    def end_of_killed(self, delivery: Delivery, error: BaseException, part: Part = Part.HANDLER) -> Settlement:
        """Return the settlement of an attempt whose process was killed. `error`: the reason, such as JobTimedOut.

        `part`: the code of the application that may have run last. If a timeout came after the handler had ended, the
        error names this code. The supervisor calls this method, so no code of the application may run here. The default
        backoff therefore replaces a backoff function of the job.
        """
        try:
            envelope = envelopes.decode(delivery.envelope)
            handler = self._registry.get(envelope.name)
            policy = policy_of(envelope, self._declared(handler))
            late = _name_of(part, handler, policy)
            if late and isinstance(error, JobTimedOut):
                error = JobTimedOut(
                    f"The {late} did not return before the timeout or deadline, so its process was killed."
                )
        except UnknownJob:
            policy = policy_of(envelope, self._standard)
        except UnreadableEnvelope as unreadable:
            return self._unreadable(delivery, unreadable)
        return self._decided(delivery, envelope, self._without_function(policy), error)

    def _without_function(self, policy: Policy) -> Policy:
        """Return a policy whose backoff runs no code of the application."""
        return policy if runs_no_function(policy.backoff) else replace(policy, backoff=self._standard.backoff)

    def _declared(self, handler: Handler) -> Policy:
        policy = self._policies.get(handler.name)
        if policy is None:
            policy = self._policies[handler.name] = handler.policy(self._standard)
        return policy

    def _limit(self, policy: Policy) -> float | None:
        """Return how many seconds an attempt may run, by the timeout and the deadline of the job; None = no limit."""
        timeout = policy.timeout_ms / 1000 if policy.timeout_ms else None
        if policy.deadline_ms is None:
            return timeout
        left = max(policy.deadline_ms - self._now_ms(), 0) / 1000
        return left if timeout is None else min(timeout, left)

    def _decided(self, delivery: Delivery, envelope: Envelope, policy: Policy, error: BaseException) -> Settlement:
        outcome = decide(envelope, policy, error, now_ms=self._now_ms, rand=self._rand)
        return self._settlement(delivery, envelope, outcome)

    def _unreadable(self, delivery: Delivery, error: UnreadableEnvelope) -> Failed:
        what = f"job {delivery.id}" if delivery.id else f"entry {delivery.entry} without a job id"
        logger.error(
            "%s (queue %s) failed: %s",
            what,
            queue_of(delivery.queue),
            error,
            extra={"job_id": delivery.id, "queue": queue_of(delivery.queue)},
        )
        failure = failures.encode(failures.describe(error, at_ms=self._now_ms()))
        return Failed(delivery.queue, delivery.id, delivery.entry, b"", failure, is_followed=True)

    def _settlement(
        self, delivery: Delivery, envelope: Envelope, outcome: Outcome, result: Any = None, *, is_logged: bool = False
    ) -> Settlement:
        """Turn an outcome into a settlement. Log a failure or a retry, unless `is_logged`."""
        queue, job_id, entry = delivery.queue, delivery.id, delivery.entry
        if isinstance(outcome, Done):
            if outcome.is_stopped:
                return Stopped(queue, job_id, entry)
            kept = encode_result(result, job_id=job_id) if outcome.retention_ms else b""
            if kept and envelope.encrypted is not ABSENT:
                kept = self._sealed(envelope, kept)
            return Acked(queue, job_id, entry, outcome.retention_ms, kept, is_followed=envelope.is_followed)
        failure = b""
        if outcome.error is not None:
            described = failures.describe(outcome.error, at_ms=self._now_ms(), attempt=outcome.attempts)
            failure = failures.encode(described)
        if isinstance(outcome, RunAgain):
            return self._released(delivery, envelope, outcome, failure)
        if not is_logged:
            log_failure(delivery, envelope, outcome)
        recounted = envelopes.recount(delivery.envelope, attempts=outcome.attempts, exceptions=outcome.exceptions)
        return Failed(queue, job_id, entry, recounted, failure, is_followed=envelope.is_followed)

    def _sealed(self, envelope: Envelope, result: bytes) -> bytes:
        """Return the result, encrypted if the payload is encrypted."""
        if not is_encrypted(envelope):
            return result
        return bytes(seal(self._key_ring, "result", msgspec.Raw(result), job_id=envelope.id, name=envelope.name))

    def _released(self, delivery: Delivery, envelope: Envelope, outcome: RunAgain, failure: bytes) -> Released:
        if outcome.error is not None:
            log_retry(delivery, envelope, outcome.error, outcome.delay_ms)
        recounted = envelopes.recount(
            delivery.envelope,
            attempts=outcome.attempts,
            exceptions=outcome.exceptions,
            unknown_since_ms=outcome.unknown_since_ms,
            refusals=outcome.refusals,
        )
        return Released(delivery.queue, delivery.id, delivery.entry, outcome.delay_ms, recounted, failure)


def _with_chain(settlement: Settlement, envelope: bytes, chain: Chain) -> Settlement:
    """Return the settlement of a job that has changed its chain. The change counts only if the job is done."""
    if not isinstance(settlement, Acked):
        return settlement
    rewritten = envelopes.rewrite(envelope, chain=chain)
    return msgspec.structs.replace(settlement, envelope=rewritten, is_followed=True)


def _name_of(part: Part, handler: Handler, policy: Policy) -> str:
    """Return a name for the code of a part that runs after a handler, or '' if the job has no such code.

    The supervisor calls this, so no attribute of an object of the application is read.
    """
    if part is Part.LISTENER:
        return "listener of JobEnded"
    if part is Part.HOOK and handler.has_failed_hook:
        return "hook `failed` of the job"
    if part is Part.BACKOFF and not runs_no_function(policy.backoff):
        function = policy.backoff.function if isinstance(policy.backoff, Computed) else policy.backoff
        named: Any = function if type(function) in (FunctionType, MethodType) else type(function)
        return f"backoff function {named.__qualname__} of the job"
    return ""
