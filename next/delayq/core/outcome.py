"""The outcome of a delivery as a value, and the function that decides it.

A handler returns, or raises an exception. `decide` derives an outcome from the return or the exception, and the worker
then reports this outcome to Redis once. The rules are those of Laravel: `retry_until` replaces `tries`, and
`max_exceptions` applies in addition. There are two differences: a snooze costs no attempt, and vanished workers count
as recoveries instead of attempts.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from delayq.core.backoff import DEFAULT, Backoff, from_wire
from delayq.core.control_flow import (
    Discard,
    Fail,
    JobCancelled,
    JobTimedOut,
    LimitReached,
    Retry,
    Snooze,
    WorkerShutdown,
    leading_error,
)
from delayq.core.envelope import UNKNOWN_SINCE, Envelope, Refusals, refusals_of
from delayq.core.errors import DeadlinePassed, DelayqError, RetryUntilPassed, TriesExhausted, UnknownJob
from delayq.core.events import Ended
from delayq.core.options import DEFAULTS, Options

UNKNOWN_FREE_MS: Final = 7 * 86_400_000
"""How long, in ms, a job that this release does not know waits for a worker of a newer release. The time counts from
the first delivery to a worker that did not know the job. The wait costs no attempts. After this time, the job fails."""
UNKNOWN_SHORTEST_MS: Final = 2_000
UNKNOWN_LONGEST_MS: Final = 600_000

REFUSED_SHORTEST_MS: Final = 1_000
REFUSED_SPREAD_MS: Final = 2_000
REFUSED_LONGEST_MS: Final = 15_000
REFUSED_FACTOR: Final = 1.5

SUSPECT: Final = 2
"""A job with this many recoveries or more is a suspect, because it may have killed its workers.

A recovery is the redelivery of a job after its child or its whole worker died, or its lease expired.
"""

OnTimeout = Literal["retry", "fail"]


@dataclass(frozen=True, slots=True)
class Policy:
    """The rules by which a job is run and retried. `tries` 0 = no limit, `timeout_ms` 0 = no timeout.

    `retry_until_ms` and `deadline_ms` are epoch ms.
    """

    tries: int = DEFAULTS.tries
    backoff: Backoff = DEFAULTS.backoff
    retry_until_ms: int | None = None
    deadline_ms: int | None = None
    max_exceptions: int | None = None
    retention_ms: int = DEFAULTS.retention_ms
    timeout_ms: int = DEFAULTS.timeout_ms
    on_timeout: OnTimeout = "retry"


@dataclass(frozen=True, slots=True)
class Done:
    """The job is done, and kept for `retention_ms`; 0 = it is deleted at once.

    `is_stopped` is True if the job was cancelled while it ran. A stopped job has no result and no follow-up jobs.
    `discarded`: the reason of a Discard; '' = the job was not discarded.
    """

    retention_ms: int = 0
    is_stopped: bool = False
    discarded: str = ""


@dataclass(frozen=True, slots=True)
class RunAgain:
    """Run the job again after `delay_ms`, with these counts of attempts and exceptions.

    `error`: None after a snooze, or if the shutdown of the worker interrupted the handler.
    `unknown_since_ms`: the time at which a worker first received this job without knowing its name or fields; None if
    this worker knows the name and the fields. `refusals`: the refusals of a job by a limit; None = no limit refused it.
    `reason`: the reason of a snooze, or ''.
    """

    delay_ms: int
    attempts: int
    exceptions: int
    error: BaseException | None = None
    unknown_since_ms: int | None = None
    refusals: Refusals | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Fail the job, with these counts of attempts and exceptions."""

    attempts: int
    exceptions: int
    error: BaseException


Outcome = Done | RunAgain | GiveUp
DONE: Final = Done()


def word_of(outcome: Outcome) -> Ended:
    """Return the word of an event for an outcome."""
    if isinstance(outcome, GiveUp):
        return "failed"
    if isinstance(outcome, RunAgain):
        return "snoozed" if outcome.error is None else "retried"
    if outcome.discarded:
        return "discarded"
    return "cancelled" if outcome.is_stopped else "done"


def default_policy(options: Options) -> Policy:
    """Return the policy of jobs whose handlers declare none."""
    return Policy(
        tries=options.tries,
        backoff=options.backoff,
        timeout_ms=options.timeout_ms,
        retention_ms=options.retention_ms,
    )


def policy_of(envelope: Envelope, declared: Policy) -> Policy:
    """Return the policy of one delivery. Values of the envelope override the declared values."""
    if (
        envelope.tries is None
        and envelope.backoff is None
        and envelope.retention_ms is None
        and envelope.timeout_ms is None
        and not (envelope.retry_until_ms or envelope.deadline_ms or envelope.max_exceptions)
    ):
        return declared  # the usual case
    return Policy(
        tries=declared.tries if envelope.tries is None else envelope.tries,
        backoff=declared.backoff if envelope.backoff is None else from_wire(envelope.backoff),
        retry_until_ms=envelope.retry_until_ms or declared.retry_until_ms,
        deadline_ms=envelope.deadline_ms or declared.deadline_ms,
        max_exceptions=envelope.max_exceptions or declared.max_exceptions,
        retention_ms=declared.retention_ms if envelope.retention_ms is None else envelope.retention_ms,
        timeout_ms=declared.timeout_ms if envelope.timeout_ms is None else envelope.timeout_ms,
        on_timeout=declared.on_timeout,
    )


def before_start(envelope: Envelope, policy: Policy, now_ms: Callable[[], int]) -> GiveUp | None:
    """Return a GiveUp if no further attempt may start, or None.

    `now_ms` is called only for a job with a deadline or `retry_until`.
    """
    error: DelayqError | None = None
    if policy.deadline_ms is not None and now_ms() > policy.deadline_ms:
        error = DeadlinePassed("The deadline of the job passed before the job could start.")
    elif policy.retry_until_ms is not None:
        if now_ms() > policy.retry_until_ms:
            error = RetryUntilPassed("The retry_until time of the job has passed.")
    elif policy.tries and envelope.attempts >= policy.tries:
        error = TriesExhausted(f"All {policy.tries} tries were used before this delivery.")
    return GiveUp(envelope.attempts, envelope.exceptions, error) if error else None


def done(policy: Policy) -> Done:
    """Return the outcome of an attempt whose handler returned."""
    return Done(policy.retention_ms) if policy.retention_ms else DONE


def decide(
    envelope: Envelope,
    policy: Policy,
    error: BaseException | None,
    *,
    now_ms: Callable[[], int],
    rand: Callable[[], float],
) -> Outcome:
    """Decide the outcome of an attempt that ended with `error`. None means that the handler returned.

    `now_ms` returns the server's time as last seen. `now_ms` is called only if the outcome depends on the time. `rand`
    returns random numbers from 0 up to 1, for jitter.
    """
    if error is None:
        return done(policy)
    error = leading_error(error)
    if isinstance(error, JobCancelled):
        return Done(is_stopped=True)
    if isinstance(error, Discard):
        return Done(discarded=str(error) or "discarded")
    if isinstance(error, Snooze | WorkerShutdown):
        return _after_snooze(envelope, error, rand)
    if isinstance(error, UnknownJob):
        return _after_unknown(envelope, policy, error, now_ms(), rand)
    return _after_attempt(envelope, policy, error, now_ms(), rand)


def _after_snooze(envelope: Envelope, error: Snooze | WorkerShutdown, rand: Callable[[], float]) -> RunAgain:
    """Let a job wait at no cost.

    A job that a limit refused waits for 1 to 3 s at random, times 1.5 for each earlier refusal in a row, up to 15 s.
    """
    if not isinstance(error, LimitReached):
        delay_ms, reason = (error.delay_ms, error.reason) if isinstance(error, Snooze) else (0, "")
        return RunAgain(delay_ms, envelope.attempts, envelope.exceptions, reason=reason)
    earlier = refusals_of(envelope)
    in_a_row = earlier.count + 1 if earlier is not None else 1
    first_ms = REFUSED_SHORTEST_MS + REFUSED_SPREAD_MS * rand()
    delay_ms = round(min(first_ms * REFUSED_FACTOR ** min(in_a_row - 1, 10), REFUSED_LONGEST_MS))
    refusals = Refusals(in_a_row, error.limit)
    return RunAgain(delay_ms, envelope.attempts, envelope.exceptions, refusals=refusals, reason=error.reason)


def _after_unknown(
    envelope: Envelope, policy: Policy, error: UnknownJob, now_ms: int, rand: Callable[[], float]
) -> Outcome:
    """Let a job that this release does not know wait for a worker that knows it.

    The wait is half of the time since a worker first received the job, from 2 s to 10 min, plus up to 20 % at random.
    """
    seen = (envelope.headers or {}).get(UNKNOWN_SINCE, "")
    since_ms = min(int(seen), now_ms) if seen.isascii() and seen.isdecimal() and len(seen) < 17 else now_ms
    age_ms = now_ms - since_ms
    has_passed = any(limit is not None and limit <= now_ms for limit in (policy.retry_until_ms, policy.deadline_ms))
    if age_ms >= UNKNOWN_FREE_MS or has_passed:
        return GiveUp(envelope.attempts, envelope.exceptions, error)
    wait_ms = min(max(age_ms // 2, UNKNOWN_SHORTEST_MS), UNKNOWN_LONGEST_MS)
    delay_ms = round(wait_ms * (1 + rand() / 5))
    return RunAgain(delay_ms, envelope.attempts, envelope.exceptions, error, unknown_since_ms=since_ms)


def _after_attempt(
    envelope: Envelope, policy: Policy, error: BaseException, now_ms: int, rand: Callable[[], float]
) -> RunAgain | GiveUp:
    attempts = envelope.attempts + 1
    exceptions = envelope.exceptions + (0 if isinstance(error, Retry) else 1)
    is_late = policy.deadline_ms is not None and now_ms >= policy.deadline_ms
    if isinstance(error, JobTimedOut) and (is_late or policy.on_timeout == "fail"):
        return GiveUp(attempts, exceptions, error)
    if isinstance(error, Fail):
        return GiveUp(attempts, exceptions, error.cause)
    if _is_exhausted(policy, attempts, exceptions, now_ms):
        return GiveUp(attempts, exceptions, error)
    if isinstance(error, Retry) and error.delay_ms is not None:
        return RunAgain(error.delay_ms, attempts, exceptions, error)
    return RunAgain(_backoff_ms(policy.backoff, attempts, error, rand), attempts, exceptions, error)


def _is_exhausted(policy: Policy, attempts: int, exceptions: int, now_ms: int) -> bool:
    if policy.retry_until_ms is not None:
        if policy.retry_until_ms <= now_ms:
            return True
    elif policy.tries and attempts >= policy.tries:
        return True
    return policy.max_exceptions is not None and exceptions >= policy.max_exceptions


def _backoff_ms(backoff: Backoff, attempt: int, error: BaseException, rand: Callable[[], float]) -> int:
    """Return the wait.

    If a backoff function raises an exception, use the default backoff, so that the original error of the job is kept.
    """
    try:
        return backoff.delay_ms(attempt, error, rand)
    except KeyboardInterrupt:
        raise
    except BaseException as broken:
        error.add_note(f"The backoff function of the job failed too ({broken!r}); the default backoff was used.")
        return DEFAULT.delay_ms(attempt, error, rand)
