"""Runs one job once in this process, for `dispatch_sync`, `delayq failed retry --here` and `run_job`."""

import asyncio
import inspect
import random
import time
from collections.abc import Awaitable
from contextlib import suppress
from contextvars import Context, copy_context
from typing import Any, Final

import msgspec

from delayq.core import clock
from delayq.core import envelope as envelopes
from delayq.core.control_flow import JobInterrupted, JobSignal, failure_of, leading_error
from delayq.core.envelope import Envelope
from delayq.core.errors import InvalidInput
from delayq.core.events import JobEnded, JobStarted
from delayq.core.job_spec import JobSpec, prepare
from delayq.core.listeners import emit, listeners
from delayq.core.options import Options
from delayq.core.outcome import Done, GiveUp, Outcome, Policy, before_start, decide, policy_of, word_of
from delayq.jobs import attempt_events
from delayq.jobs.context import JobContext
from delayq.jobs.handlers import Handler, call_failed_hook, checked_result
from delayq.jobs.own_loop import run_in_own_loop
from delayq.jobs.registry import Registry, registry

_ONCE: Final = Policy(tries=1)
_WITHOUT_LIMIT: Final = Policy(tries=0)

Caught = type[BaseException] | tuple[type[BaseException], ...]

_ATTEMPT: Final[Caught] = (Exception, JobInterrupted)
"""The errors that end an attempt. `dispatch_sync` does not catch JobInterrupted: if a handler calls `dispatch_sync`, an
interruption is meant for the job of this handler."""


class Ran(msgspec.Struct, frozen=True):
    """The outcome of a job that ran in this process.

    * `outcome`: Done, RunAgain (after a `Retry` or `Snooze`, and with `run_job` also after an error if an attempt is
      left) or GiveUp (the job failed).
    * `result`: the return value of the handler, or None.
    * `error`: the exception of the handler, or the reason why the handler was not called, or None. With `run_job`, for
      a `Fail` with an exception, `error` is the inner exception.
    """

    outcome: Outcome
    result: Any = None
    error: BaseException | None = None


def run_spec(spec: JobSpec) -> Ran:
    """Run a job that was not sent, in this thread.

    Raises the exception of the handler, unless it is Retry, Snooze or Discard. Also raises the errors of `run`.
    """
    return _or_raise(run(envelope_of(spec)))


async def arun_spec(spec: JobSpec) -> Ran:
    """Run a job that was not sent, in this event loop.

    Raises the same as `run_spec`, except that an async handler is never refused.
    """
    return _or_raise(await arun(envelope_of(spec)))


def run(raw: bytes, *, jobs: Registry = registry) -> Ran:
    """Run the job of an envelope in this thread, as its only attempt, and return its outcome.

    Raises UnreadableEnvelope, UnknownJob, msgspec.ValidationError for a payload that does not fit the job, and
    InvalidInput if the handler is async and this thread is running an event loop.
    """
    envelope = envelopes.decode(raw)
    handler = jobs.get(envelope.name)
    if handler.is_async and _is_inside_a_loop():
        raise InvalidInput(
            f"The handler of {envelope.name!r} is async, and this thread is already running an event loop.",
            hint="Use `await adispatch_sync`.",
        )
    call = _Call(envelope, handler, handler.read(envelope.data), _context(envelope, raw))
    result, error = _called(call)
    return _told(call, _decided(envelope, result, error))


async def arun(raw: bytes, *, jobs: Registry = registry) -> Ran:
    """Run the job of an envelope in this event loop. A handler that is not async runs in a thread.

    Returns and raises the same as `run`, except that an async handler is never refused.
    """
    envelope = envelopes.decode(raw)
    handler = jobs.get(envelope.name)
    call = _Call(envelope, handler, handler.read(envelope.data), _context(envelope, raw))
    result, error = await _acalled(call)
    return await _atold(call, _decided(envelope, result, error))


def run_attempt(raw: bytes, standard: Policy, *, jobs: Registry = registry) -> Ran:
    """Run one attempt of the job of an envelope in this thread, and return the outcome that a worker would settle.

    `standard`: the values for the parts of a policy that the job does not declare.

    Raises UnreadableEnvelope, and InvalidInput if the handler is async and this thread is running an event loop.
    """
    begun = _begun(raw, standard, jobs)
    if isinstance(begun, Ran):
        return begun
    if begun.call.handler.is_async and _is_inside_a_loop():
        raise InvalidInput(
            f"The handler of {begun.call.envelope.name!r} is async, and this thread is already running an event loop.",
            hint="Use the async version of this function, whose name begins with `a`.",
        )
    result, error = (None, begun.refusal) if begun.refusal else _called(begun.call, _ATTEMPT)
    return _told(begun.call, begun.ended(result, error))


async def arun_attempt(raw: bytes, standard: Policy, *, jobs: Registry = registry) -> Ran:
    """Run one attempt in this event loop; see `run_attempt`. A handler that is not async runs in a thread."""
    begun = _begun(raw, standard, jobs)
    if isinstance(begun, Ran):
        return begun
    result, error = (None, begun.refusal) if begun.refusal else await _acalled(begun.call, _ATTEMPT)
    return await _atold(begun.call, begun.ended(result, error))


class _Call(msgspec.Struct):
    """The call of a handler.

    `variables`: the context variables of a handler that runs in this thread. `started_at`: when the call began, by
    `time.monotonic`; None = not yet.
    """

    envelope: Envelope
    handler: Handler
    job: Any
    context: JobContext
    variables: Context = msgspec.field(default_factory=copy_context)
    started_at: float | None = None

    def start(self) -> Any:
        """Emit JobStarted, call the handler, and return its result."""
        self.started_at = time.monotonic()
        if JobStarted in listeners:
            emit(attempt_events.started(self.envelope))
        return self.handler.call(self.job, self.context)

    def tell_ended(self, outcome: Outcome) -> None:
        """Emit JobEnded, if the handler was called."""
        if self.started_at is not None and JobEnded in listeners:
            error = None if isinstance(outcome, Done) else outcome.error
            seconds = time.monotonic() - self.started_at
            emit(attempt_events.ended(self.envelope, word_of(outcome), error, seconds))


class _Begun(msgspec.Struct, frozen=True):
    """An attempt that is about to start.

    `refusal`: why the handler must not be called, because the job has used all its attempts or its time; None = call
    the handler.
    """

    call: _Call
    policy: Policy
    refusal: BaseException | None

    def ended(self, result: Any, error: BaseException | None) -> Ran:
        """Decide the outcome by the policy of the job."""
        envelope = self.call.envelope
        if self.refusal is not None:
            return Ran(GiveUp(envelope.attempts, envelope.exceptions, self.refusal), None, self.refusal)
        outcome = decide(envelope, self.policy, error, now_ms=_now_ms, rand=random.random)
        return Ran(outcome, result, failure_of(error))


def _begun(raw: bytes, standard: Policy, jobs: Registry) -> _Begun | Ran:
    """Find the handler, and read the payload. If one of these two steps fails, return the outcome."""
    envelope = envelopes.decode(raw)
    policy = standard
    try:
        handler = jobs.get(envelope.name)
        policy = policy_of(envelope, handler.policy(standard))
        job = handler.read(envelope.data)
    except Exception as error:
        return Ran(decide(envelope, policy, error, now_ms=_now_ms, rand=random.random), None, error)
    refused = before_start(envelope, policy, _now_ms)
    context = JobContext(envelope, raw, tries=policy.tries, due_ms=_now_ms())
    return _Begun(_Call(envelope, handler, job, context), policy, None if refused is None else refused.error)


def _called(call: _Call, caught: Caught = Exception) -> tuple[Any, BaseException | None]:
    """Call a handler, and return its result or its error. Other errors than `caught` are raised."""
    try:
        result = call.variables.run(call.start)
        if inspect.isawaitable(result):
            result = run_in_own_loop(result, context=call.variables)
        return checked_result(result), None
    except caught as error:
        return None, error


async def _acalled(call: _Call, caught: Caught = Exception) -> tuple[Any, BaseException | None]:
    """Call a handler in this event loop; see `_called`."""
    try:
        if call.handler.is_async:
            result = await call.start()
        else:
            result = await asyncio.to_thread(call.start)
            if inspect.isawaitable(result):
                result = await result
        return checked_result(result), None
    except caught as error:
        return None, error


def _told(call: _Call, ran: Ran) -> Ran:
    if hook := _tell(call, ran.outcome):
        run_in_own_loop(hook)
    call.variables.run(call.tell_ended, ran.outcome)
    return ran


async def _atold(call: _Call, ran: Ran) -> Ran:
    if hook := _tell(call, ran.outcome):
        await hook
    call.tell_ended(ran.outcome)
    return ran


def envelope_of(spec: JobSpec) -> bytes:
    """Return the envelope of a job that is not sent. Raises InvalidInput."""
    spec = msgspec.structs.replace(spec, encrypted=False)  # the job does not leave this process
    return prepare(spec, Options(), _now_ms()).envelope


def _context(envelope: Envelope, raw: bytes) -> JobContext:
    return JobContext(envelope, raw, tries=envelope.attempts + 1, due_ms=_now_ms())


def _decided(envelope: Envelope, result: Any, error: BaseException | None) -> Ran:
    """Decide the outcome of the only attempt.

    After a `Retry` or `Snooze`, the outcome is RunAgain and not a failure, although no worker will run the job again.
    """
    policy = _WITHOUT_LIMIT if error is not None and isinstance(leading_error(error), JobSignal) else _ONCE
    return Ran(decide(envelope, policy, error, now_ms=_now_ms, rand=random.random), result, error)


def _tell(call: _Call, outcome: Outcome) -> Awaitable[None] | None:
    if not isinstance(outcome, GiveUp) or not call.handler.has_failed_hook:
        return None
    return call_failed_hook(call.handler, call.job, outcome.error, call.context, job_id=call.context.id)


def _or_raise(ran: Ran) -> Ran:
    if isinstance(ran.outcome, GiveUp):
        raise ran.outcome.error
    return ran


def _is_inside_a_loop() -> bool:
    with suppress(RuntimeError):
        return asyncio.get_running_loop().is_running()
    return False


def _now_ms() -> int:
    return int(clock.time() * 1000)
