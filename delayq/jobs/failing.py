"""Tells a handler that its job has failed for good, on a fresh instance, once it is decided."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from delayq.core.envelope import Envelope
from delayq.core.outcome import GiveUp, Outcome
from delayq.jobs.handler import Handler

log = logging.getLogger("delayq.jobs")


def tell_failed(
    handler: Handler, envelope: Envelope, outcome: Outcome, await_: Callable[[Awaitable[Any]], Any]
) -> None:
    """Call the `failed` hook if the outcome is a failure; `await_` awaits an async one.

    It runs before the job is settled, so it is not missed when the process dies, but may then run twice. What it
    raises is logged: the job has failed either way.
    """
    if not handler.hears_failures or not isinstance(outcome, GiveUp):
        return
    try:
        answer = handler.failed(envelope.data, outcome.error)
        if inspect.isawaitable(answer):
            await_(answer)
    except KeyboardInterrupt:
        raise
    except BaseException:  # a hook may raise anything; the job has failed, and the worker has others
        log.exception("job %s (%s): its failed hook raised", envelope.id, envelope.name)


async def atell_failed(handler: Handler, envelope: Envelope, outcome: Outcome) -> None:
    """As `tell_failed`, in an event loop."""
    if not handler.hears_failures or not isinstance(outcome, GiveUp):
        return
    try:
        answer = handler.failed(envelope.data, outcome.error)
        if inspect.isawaitable(answer):
            await answer
    except KeyboardInterrupt:
        raise
    except BaseException:  # a hook may raise anything; the job has failed, and the worker has others
        log.exception("job %s (%s): its failed hook raised", envelope.id, envelope.name)
