"""Runs one job once in this process, for `dispatch_sync` and `delayq failed retry --here`."""

import asyncio
import inspect
import random
import time
from collections.abc import Awaitable
from contextlib import suppress
from contextvars import copy_context
from typing import Any, Final

import msgspec

from delayq.core import envelope as envelopes
from delayq.core.control_flow import JobSignal, leading_error
from delayq.core.envelope import Envelope
from delayq.core.errors import InvalidInput
from delayq.core.job_spec import JobSpec, prepare
from delayq.core.options import Options
from delayq.core.outcome import GiveUp, Outcome, Policy, decide
from delayq.jobs.context import JobContext
from delayq.jobs.handlers import Handler, as_coroutine, call_failed_hook, checked_result
from delayq.jobs.registry import Registry, registry

_ONCE: Final = Policy(tries=1)
_WITHOUT_LIMIT: Final = Policy(tries=0)


class Ran(msgspec.Struct, frozen=True):
    """The outcome of a job that ran in this process.

    * `outcome`: Done, RunAgain (after a `Retry` or `Snooze`) or GiveUp (the job failed).
    * `result`: the return value of the handler, or None.
    * `error`: the exception that the handler raised, or None.
    """

    outcome: Outcome
    result: Any = None
    error: BaseException | None = None


def run_spec(spec: JobSpec) -> Ran:
    """Run a job that was not sent, in this thread.

    Raises the exception of the handler, unless it is Retry, Snooze or Discard. Also raises the errors of `run`.
    """
    return _or_raise(run(_envelope_of(spec)))


async def arun_spec(spec: JobSpec) -> Ran:
    """Run a job that was not sent, in this event loop.

    Raises the same as `run_spec`, except that an async handler is never refused.
    """
    return _or_raise(await arun(_envelope_of(spec)))


def run(raw: bytes, *, jobs: Registry = registry) -> Ran:
    """Run the job of an envelope in this thread, and return its outcome.

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
    job, context = handler.read(envelope.data), _context(envelope, raw)
    result: Any = None
    error: BaseException | None = None
    try:
        result = copy_context().run(handler.call, job, context)
        if inspect.isawaitable(result):
            result = asyncio.run(as_coroutine(result))
        checked_result(result)
    except Exception as raised:
        error = raised
    ran = _decided(envelope, result, error)
    if told := _tell(handler, job, context, ran.outcome):
        asyncio.run(as_coroutine(told))
    return ran


async def arun(raw: bytes, *, jobs: Registry = registry) -> Ran:
    """Run the job of an envelope in this event loop. A handler that is not async runs in a thread.

    Returns and raises the same as `run`, except that an async handler is never refused.
    """
    envelope = envelopes.decode(raw)
    handler = jobs.get(envelope.name)
    job, context = handler.read(envelope.data), _context(envelope, raw)
    result: Any = None
    error: BaseException | None = None
    try:
        if handler.is_async:
            result = await handler.call(job, context)
        else:
            result = await asyncio.to_thread(handler.call, job, context)
            if inspect.isawaitable(result):
                result = await result
        checked_result(result)
    except Exception as raised:
        error = raised
    ran = _decided(envelope, result, error)
    if told := _tell(handler, job, context, ran.outcome):
        await told
    return ran


def _envelope_of(spec: JobSpec) -> bytes:
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


def _tell(handler: Handler, job: Any, context: JobContext, outcome: Outcome) -> Awaitable[None] | None:
    if not isinstance(outcome, GiveUp) or not handler.has_failed_hook:
        return None
    return call_failed_hook(handler, job, outcome.error, context, job_id=context.id)


def _or_raise(ran: Ran) -> Ran:
    if isinstance(ran.outcome, GiveUp):
        raise ran.outcome.error
    return ran


def _is_inside_a_loop() -> bool:
    with suppress(RuntimeError):
        return asyncio.get_running_loop().is_running()
    return False


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
