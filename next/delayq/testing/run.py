"""Runs one attempt of a job in the process of a test."""

from typing import Any, Unpack

from delayq.core import envelope as envelopes
from delayq.core.errors import InvalidInput
from delayq.core.job_spec import check_whole_number
from delayq.core.outcome import DONE, Policy, default_policy
from delayq.jobs.dispatch import Sendable, _by_name, plan
from delayq.jobs.local_run import Ran, arun_attempt, envelope_of, run_attempt
from delayq.jobs.options import Said
from delayq.manager import current_manager


def run_job(job: Sendable | str, data: Any = None, *, attempts: int = 0, **said: Unpack[Said]) -> Ran:
    """Run one attempt of a job in this thread, without Redis, and return the outcome that a worker would settle.

        job         a job such as CloseOrder(order_id=42) or close_order.job(order_id=42), or the name of a job
        data        the payload of a job that is given by its name
        attempts    the number of attempts before this one; 2 = run the third attempt
        said        options, as for `dispatch`

    The returned Ran has the `outcome` (Done, RunAgain or GiveUp), the `result` of the handler, and the `error` of the
    handler. An error of the handler is not raised. For a `Fail` with an exception, `error` is the inner exception. The
    middleware runs, but limits are not checked. The timeout does not interrupt the handler. If the job fails, the hook
    `failed` is called. If `prepare_for_dispatch` returns False, the job is not run, and the outcome is Done. Raises
    InvalidInput for options that cannot be used, and for an async handler in a running event loop: in this case, use
    `await arun_job(…)`.

        ran = run_job(CloseOrder(order_id=42), attempts=2)
        assert isinstance(ran.outcome, GiveUp)
    """
    raw, standard = _prepared(job, data, attempts, said)
    return Ran(DONE) if raw is None else run_attempt(raw, standard)


async def arun_job(job: Sendable | str, data: Any = None, *, attempts: int = 0, **said: Unpack[Said]) -> Ran:
    """Run one attempt of a job in this event loop; see `run_job`. A handler that is not async runs in a thread."""
    raw, standard = _prepared(job, data, attempts, said)
    return Ran(DONE) if raw is None else await arun_attempt(raw, standard)


def _prepared(job: Sendable | str, data: Any, attempts: int, said: Said) -> tuple[bytes | None, Policy]:
    """Return the envelope of a job, or None if `prepare_for_dispatch` returned False, and the default policy."""
    if not isinstance(job, str) and data is not None:
        raise InvalidInput(
            "data= is given, but the job has a payload already.",
            hint="Leave out data=, or pass the name of the job instead of the job.",
            field="data",
        )
    check_whole_number("attempts", attempts, least=0)
    manager = current_manager()
    sendable = _by_name(job, data) if isinstance(job, str) else job
    planned = plan(sendable._with(**said), manager)
    standard = default_policy(planned.connection.settings.options())
    if planned.spec is None:
        return None, standard
    return envelopes.recount(envelope_of(planned.spec), attempts=attempts, exceptions=0), standard
