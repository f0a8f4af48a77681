"""`run_job`: one attempt of a job through everything it passes on its way, without a server.

    assert run_job(CloseOrder(order_id=42)) == Ack()
    assert isinstance(run_job(CloseOrder(order_id=42), attempt=3), GiveUp)

The job is composed as for a dispatch, written to JSON and read back, asked whether it may start, handled, decided as
a worker decides, and told if it has failed for good. What comes out is the outcome that a worker would settle.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from delayq.app import fallback_policy
from delayq.core import envelope as envelopes
from delayq.core.errors import InvalidInput
from delayq.core.outcome import Outcome
from delayq.core.views import JobRef
from delayq.drivers.sync import Ran
from delayq.jobs.current import current_manager
from delayq.jobs.dispatch import Sendable
from delayq.jobs.running import LocalRunner, Rules, envelope_of
from delayq.jobs.sending import compose


def middle() -> float:
    """No jitter: in the middle of what it could be, so that a test meets the same delay each time."""
    return 0.5


def run_job(job: Sendable, *, attempt: int = 1) -> Outcome:
    """One attempt, the first unless told otherwise; its outcome: `Ack`, `Release` or `GiveUp`.

    A job function is run by `run_job(close_order.job(order_id=42))`. What the handler raises is in the outcome, a
    discard is `Ack()`. A delay is not waited for, a timeout does not end it, a jitter is in the middle of its range.
    Raises `InvalidInput` and `ConfigError` as a dispatch, `InvalidInput` also for a job that vetoes its own
    dispatch, and for an async handler inside an event loop: `arun_job` is for that.
    """
    envelope, runner = _ready(job, attempt)
    with blocking("Use await arun_job(…)."):
        return _outcome(runner.run(envelope))


async def arun_job(job: Sendable, *, attempt: int = 1) -> Outcome:
    """Run one attempt, awaited: an async handler in this event loop, a plain one in a thread beside it.

    `attempt` counts from 1. Returns the outcome: `Ack`, `Release` or `GiveUp`. Raises `InvalidInput` and `ConfigError`
    as a dispatch does, `InvalidInput` also for a job that vetoes its own dispatch.
    """
    envelope, runner = _ready(job, attempt)
    return _outcome(await runner.arun(envelope))


@contextmanager
def blocking(instead: str) -> Iterator[None]:
    """A blocking run: an async handler that is refused because of it hears what to use instead."""
    try:
        yield
    except InvalidInput as error:
        raise InvalidInput(error.message, hint=instead) from error


def _ready(job: Sendable, attempt: int) -> tuple[bytes, LocalRunner]:
    """The bytes that would travel, and who runs them."""
    if attempt < 1:
        raise InvalidInput(f"attempt is {attempt!r}; attempts count from 1.")
    dispatch, manager = job._used(), current_manager()
    parcel = compose(dispatch.message, dispatch.said, manager)
    if isinstance(parcel, JobRef):
        raise InvalidInput(f"The job {parcel.name!r} vetoed its own dispatch, so there is nothing to run.")
    envelope = envelope_of(parcel, manager.settings.options())
    if attempt > 1:
        envelope = envelopes.rewrite(envelope, attempts=attempt - 1)
    return envelope, LocalRunner(current_manager, Rules(fallback_policy(manager.settings), rand=middle))


def _outcome(ran: Ran) -> Outcome:
    assert ran.outcome is not None, "only a veto has no outcome, and it was refused before"
    return ran.outcome
