"""What should happen to a delivery, as a value, and the one place that decides it.

A handler returns or raises; `decide` turns that into an `Outcome`; the worker settles it once, at
the end. Nothing in here does anything. The rules are Laravel's (retry-until before tries, then
max-exceptions), with two differences: a snooze costs no attempt, and recoveries after a vanished
worker are counted apart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from delayq.core.backoff import DEFAULT, Backoff, from_wire
from delayq.core.envelope import UNKNOWN_SINCE, Envelope
from delayq.core.errors import DelayqError, UnknownJob
from delayq.core.failure import Ran
from delayq.core.follow import linked
from delayq.core.interrupts import JobCancelled, JobTimedOut, WorkerShutdown
from delayq.core.signals import Discard, Fail, Retry, Snooze


class TriesExhausted(DelayqError):
    """The job has no tries left."""


class RetryUntilPassed(DelayqError):
    """The time until which the job may be tried has passed."""


class DeadlinePassed(DelayqError):
    """The job's deadline passed before it could start."""


UNKNOWN_FREE_MS: Final = 3_600_000
"""For so long a job with an unknown name costs no attempts: workers with newer code may be on their way."""
UNKNOWN_SHORTEST_MS: Final = 2_000
UNKNOWN_LONGEST_MS: Final = 60_000


class OnTimeout(StrEnum):
    """What a timeout does to a job: one attempt lost, or failed for good."""

    RETRY = "retry"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Policy:
    """How a job is tried: its envelope's wishes over its handler's over the worker's.

    `tries` 0 means without limit, `timeout_ms` 0 without a timeout. Times are epoch ms, durations ms.
    """

    tries: int
    backoff: Backoff
    retry_until_ms: int | None = None
    deadline_ms: int | None = None
    max_exceptions: int | None = None
    retention_ms: int = 0
    timeout_ms: int = 0
    on_timeout: OnTimeout = OnTimeout.RETRY


def policy_of(envelope: Envelope, fallback: Policy) -> Policy:
    """The policy of one delivery; `fallback` is its handler's, already laid over the worker's defaults."""
    if (
        envelope.tries is None
        and envelope.backoff is None
        and envelope.retention_ms is None
        and envelope.timeout_ms is None
        and not (envelope.retry_until_ms or envelope.deadline_ms or envelope.max_exceptions)
    ):
        return fallback  # most envelopes say nothing
    return Policy(
        tries=fallback.tries if envelope.tries is None else envelope.tries,
        backoff=fallback.backoff if envelope.backoff is None else from_wire(envelope.backoff),
        retry_until_ms=envelope.retry_until_ms or fallback.retry_until_ms,
        deadline_ms=envelope.deadline_ms or fallback.deadline_ms,
        max_exceptions=envelope.max_exceptions or fallback.max_exceptions,
        retention_ms=fallback.retention_ms if envelope.retention_ms is None else envelope.retention_ms,
        timeout_ms=fallback.timeout_ms if envelope.timeout_ms is None else envelope.timeout_ms,
        on_timeout=fallback.on_timeout,
    )


@dataclass(frozen=True, slots=True)
class Ack:
    """Done. Kept for `retention_ms` with `result` (JSON, or b''), else forgotten.

    `called_off`: it was asked to stop, so nothing of its chain follows. `chain`: what its handler made of the rest of
    its chain; b'' = as it was. `ran`, here and below: its way to its start, for its timeline.
    """

    retention_ms: int = 0
    result: bytes = b""
    called_off: bool = False
    chain: bytes = b""
    ran: Ran | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Release:
    """Try again in `delay_ms`. `attempts` and `exceptions` are the counts from now on; no `error` = a snooze.

    `unknown_since_ms`: when a worker first met the job without a handler for it, in epoch ms; None = it has one.
    """

    delay_ms: int
    attempts: int
    exceptions: int
    error: BaseException | None
    ran: Ran | None = field(default=None, compare=False)
    unknown_since_ms: int | None = None


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Failed for good."""

    attempts: int
    exceptions: int
    error: BaseException
    ran: Ran | None = field(default=None, compare=False)


Outcome = Ack | Release | GiveUp
DONE: Final = Ack()
"""Done and forgotten, with nothing to follow: what becomes of nearly every job."""


def told_as(outcome: Outcome) -> tuple[str, BaseException | None]:
    """The word that logs and listeners use for an outcome, and its cause."""
    if isinstance(outcome, Ack):
        return "done", None
    if isinstance(outcome, Release):
        return ("snoozed" if outcome.error is None else "released"), outcome.error
    return "failed", outcome.error


def before_start(envelope: Envelope, policy: Policy, now_ms: int) -> GiveUp | None:
    """Whether an attempt may start at all; the handler never runs when it may not."""
    error: DelayqError | None = None
    if policy.deadline_ms is not None and now_ms > policy.deadline_ms:
        error = DeadlinePassed()
    elif policy.retry_until_ms is not None:
        error = RetryUntilPassed() if now_ms > policy.retry_until_ms else None
    elif policy.tries and envelope.attempts >= policy.tries:
        error = TriesExhausted(f"All {policy.tries} tries were used before this delivery.")
    return GiveUp(envelope.attempts, envelope.exceptions, error) if error else None


def decide(
    envelope: Envelope,
    policy: Policy,
    error: BaseException | None,
    now_ms: int,
    rand: Callable[[], float],
    *,
    keeps_headers: bool = True,
) -> Outcome:
    """What becomes of an attempt that ended with `error` (None = the handler returned).

    `now_ms` is the server's time as last seen; `rand` gives numbers in [0, 1) for jitter. Without `keeps_headers` it
    cannot be written down since when a name is unknown, so an unknown one costs an attempt each time.
    """
    if error is None:
        return Ack(policy.retention_ms) if policy.retention_ms or linked(envelope) else DONE
    if isinstance(error, JobCancelled):
        return Ack(called_off=True)
    if isinstance(error, Discard):
        return Ack() if linked(envelope) else DONE
    if isinstance(error, Snooze | WorkerShutdown):
        delay_ms = error.delay_ms if isinstance(error, Snooze) else 0
        return Release(delay_ms, envelope.attempts, envelope.exceptions, None)
    if isinstance(error, UnknownJob) and keeps_headers:
        return _unknown(envelope, policy, error, now_ms, rand)
    return _counted(envelope, policy, error, now_ms, rand)


def _unknown(envelope: Envelope, policy: Policy, error: UnknownJob, now_ms: int, rand: Callable[[], float]) -> Outcome:
    """What becomes of a job without a handler here: it waits for a worker that has one, and costs nothing for an hour.

    The wait grows with the time for which it is unknown, so it needs no count.
    """
    seen = (envelope.headers or {}).get(UNKNOWN_SINCE, "")
    since_ms = min(int(seen), now_ms) if seen.isascii() and seen.isdecimal() and len(seen) < 17 else now_ms
    unknown_ms = now_ms - since_ms
    passed = any(until is not None and until <= now_ms for until in (policy.retry_until_ms, policy.deadline_ms))
    if unknown_ms < UNKNOWN_FREE_MS and not passed:
        wait_ms = min(max(unknown_ms // 2, UNKNOWN_SHORTEST_MS), UNKNOWN_LONGEST_MS)
        delay_ms = round(wait_ms * (1 + rand() / 5))
        waits = UnknownJob(
            f"{error.message} The job waits for a worker that has one; this wait counts no attempt.", hint=error.hint
        )
        return Release(delay_ms, envelope.attempts, envelope.exceptions, waits, unknown_since_ms=since_ms)
    outcome = _counted(envelope, policy, error, now_ms, rand)
    return replace(outcome, unknown_since_ms=since_ms) if isinstance(outcome, Release) else outcome


def _counted(
    envelope: Envelope, policy: Policy, error: BaseException, now_ms: int, rand: Callable[[], float]
) -> Release | GiveUp:
    """What becomes of an attempt that is charged."""
    attempts = envelope.attempts + 1
    asked = isinstance(error, Retry)
    exceptions = envelope.exceptions + (0 if asked else 1)
    if isinstance(error, JobTimedOut) and _ends_with_a_timeout(policy, now_ms):
        return GiveUp(attempts, exceptions, error)
    if isinstance(error, Fail):
        return GiveUp(attempts, exceptions, error.cause)
    if _exhausted(policy, attempts, exceptions, now_ms):
        return GiveUp(attempts, exceptions, error)
    if isinstance(error, Retry) and error.delay_ms is not None:
        return Release(error.delay_ms, attempts, exceptions, error)
    return Release(_backoff_ms(policy.backoff, attempts, error, rand), attempts, exceptions, error)


def _ends_with_a_timeout(policy: Policy, now_ms: int) -> bool:
    """Whether a timeout is the last word: when it should be, or when a retry would start past the deadline."""
    late = policy.deadline_ms is not None and now_ms >= policy.deadline_ms
    return late or policy.on_timeout is OnTimeout.FAIL


def stopped(outcome: Outcome) -> Outcome:
    """What becomes of a job that was asked to stop while it ran: whatever else happens, it is not tried again."""
    return Ack(called_off=True) if isinstance(outcome, Release) else outcome


def _backoff_ms(backoff: Backoff, attempt: int, error: BaseException, rand: Callable[[], float]) -> int:
    """The backoff's delay. A function of the user's that fails itself must not take the attempt's error with it."""
    try:
        return backoff.delay_ms(attempt, error, rand)
    except Exception as broken:  # noqa: BLE001  (a function of the user's may raise anything; it is noted below)
        error.add_note(f"The job's backoff function failed too ({broken!r}); the default backoff was used.")
        return DEFAULT.delay_ms(attempt, error, rand)


def _exhausted(policy: Policy, attempts: int, exceptions: int, now_ms: int) -> bool:
    if policy.retry_until_ms is not None:
        if policy.retry_until_ms <= now_ms:
            return True
    elif policy.tries and attempts >= policy.tries:
        return True
    return policy.max_exceptions is not None and exceptions >= policy.max_exceptions
