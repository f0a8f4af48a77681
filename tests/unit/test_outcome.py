"""decide() and before_start(): the rules of retry, give-up and time, row by row."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from delayq.core.backoff import DEFAULT, Computed, Exponential, Fixed, Steps
from delayq.core.envelope import UNKNOWN_SINCE, Envelope, afresh, decode, encode, keeps_headers, recounted
from delayq.core.errors import UnknownJob
from delayq.core.outcome import (
    Ack,
    DeadlinePassed,
    GiveUp,
    Outcome,
    Policy,
    Release,
    RetryUntilPassed,
    TriesExhausted,
    before_start,
    decide,
    policy_of,
    stopped,
)
from delayq.core.signals import Discard, Fail, Retry, Snooze

NOW = 1_800_000_000_000
BOOM = ValueError("boom")


def envelope(**members: Any) -> Envelope:
    return Envelope(
        **{
            "v": 1,
            "id": "o1",
            "name": "close",
            "queue": "orders",
            "data": msgspec.Raw(b"null"),
            "attempts": 0,
            "created_ms": 0,
            **members,
        }
    )


def policy(**members: Any) -> Policy:
    return Policy(**{"tries": 3, "backoff": Fixed(1_000), **members})


def half() -> float:
    return 0.5


def decided(error: BaseException | None, *, of: Envelope | None = None, by: Policy | None = None) -> Outcome:
    return decide(of or envelope(), by or policy(), error, NOW, half)


# -- after an attempt ------------------------------------------------------------------------------------------------


def test_a_handler_that_returns_is_done() -> None:
    assert decided(None) == Ack(0)
    assert decided(None, by=policy(retention_ms=60_000)) == Ack(60_000)


def test_a_discarded_job_is_not_kept() -> None:
    assert decided(Discard(), by=policy(retention_ms=60_000)) == Ack(0)


@pytest.mark.parametrize(
    ("made", "tries", "again"),
    [
        (0, 3, True),
        (1, 3, True),
        (2, 3, False),  # the third of three
        (7, 3, False),  # tries were lowered while it waited
        (0, 1, False),
        (0, 0, True),  # 0 = without limit
        (99_999, 0, True),
    ],
)
def test_attempts_and_tries(made: int, tries: int, again: bool) -> None:
    outcome = decided(BOOM, of=envelope(attempts=made), by=policy(tries=tries))
    assert outcome == (Release(1_000, made + 1, 1, BOOM) if again else GiveUp(made + 1, 1, BOOM))


@pytest.mark.parametrize(
    ("until", "made", "tries", "again"),
    [
        (NOW + 1, 50, 3, True),  # retry-until goes before tries: whatever the attempts
        (NOW, 0, 3, False),  # over at this very millisecond
        (NOW - 1, 0, 0, False),
    ],
)
def test_retry_until_goes_before_tries(until: int, made: int, tries: int, again: bool) -> None:
    outcome = decided(BOOM, of=envelope(attempts=made), by=policy(tries=tries, retry_until_ms=until))
    assert isinstance(outcome, Release if again else GiveUp)


@pytest.mark.parametrize(
    ("before", "limit", "again"),
    [(0, 2, True), (1, 2, False), (0, 1, False), (5, None, True)],
)
def test_max_exceptions_counts_errors_only(before: int, limit: int | None, again: bool) -> None:
    outcome = decided(BOOM, of=envelope(exceptions=before), by=policy(tries=0, max_exceptions=limit))
    expected = Release(1_000, 1, before + 1, BOOM) if again else GiveUp(1, before + 1, BOOM)
    assert outcome == expected


def test_max_exceptions_ends_a_job_whose_time_is_not_over() -> None:
    assert isinstance(decided(BOOM, by=policy(max_exceptions=1, retry_until_ms=NOW + 9_999)), GiveUp)


def test_a_retry_asked_for_costs_an_attempt_and_is_no_exception() -> None:
    asked = Retry("5m")
    assert decided(asked) == Release(300_000, 1, 0, asked)
    assert decided(asked, of=envelope(attempts=2)) == GiveUp(3, 0, asked)
    assert decided(asked, by=policy(tries=0, max_exceptions=1)) == Release(300_000, 1, 0, asked)


def test_a_retry_without_a_delay_takes_the_backoff() -> None:
    asked = Retry()
    assert decided(asked, of=envelope(attempts=1), by=policy(backoff=Steps((10, 20)))) == Release(20, 2, 0, asked)


def test_a_snooze_costs_nothing_whatever_is_left() -> None:
    for of in (envelope(), envelope(attempts=2), envelope(attempts=9, exceptions=9)):
        for by in (policy(), policy(tries=1), policy(max_exceptions=1), policy(retry_until_ms=NOW - 1)):
            assert decided(Snooze("90s"), of=of, by=by) == Release(90_000, of.attempts, of.exceptions, None)


def test_fail_ends_it_whatever_tries_are_left() -> None:
    error = Fail("a fake order")
    assert decided(error, by=policy(tries=0)) == GiveUp(1, 1, error)


@pytest.mark.parametrize(
    ("backoff", "made", "delay_ms"),
    [
        (Fixed(7), 0, 7),
        (Steps((10, 60)), 0, 10),
        (Steps((10, 60)), 1, 60),
        (Steps((10, 60)), 8, 60),  # the last one repeats
        (Exponential(base_ms=1_000, cap_ms=8_000, jitter=False), 2, 4_000),
        (Exponential(base_ms=1_000, cap_ms=8_000, jitter=False), 9, 8_000),
        (Computed(lambda attempt, error: f"{attempt}m"), 1, 120_000),
    ],
)
def test_backoff_by_the_attempt_that_failed(backoff: Any, made: int, delay_ms: int) -> None:
    outcome = decided(BOOM, of=envelope(attempts=made), by=policy(tries=0, backoff=backoff))
    assert isinstance(outcome, Release)
    assert outcome.delay_ms == delay_ms


def test_a_backoff_function_that_fails_keeps_the_attempts_own_error() -> None:
    def broken(attempt: int, error: BaseException | None) -> str:
        raise KeyError("table")

    error = ValueError("the real one")
    outcome = decided(error, by=policy(backoff=Computed(broken)))
    assert isinstance(outcome, Release)
    assert outcome.error is error
    assert "KeyError('table')" in error.__notes__[0]
    assert outcome.delay_ms == DEFAULT.delay_ms(1, error, half)


# -- asked to stop ---------------------------------------------------------------------------------------------------


def test_a_job_that_was_asked_to_stop_is_not_tried_again() -> None:
    given_up = GiveUp(1, 1, BOOM)
    assert stopped(Release(10, 1, 1, BOOM)) == Ack(called_off=True)
    assert stopped(Release(10, 0, 0, None)) == Ack(called_off=True), "neither after a snooze"
    assert stopped(given_up) is given_up, "what has failed has failed"
    assert stopped(Ack(60_000, b"1")) == Ack(60_000, b"1"), "what is done is done"


# -- before an attempt -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made", "by", "error"),
    [
        (0, policy(), None),
        (2, policy(tries=3), None),
        (3, policy(tries=3), TriesExhausted),
        (99, policy(tries=0), None),
        (99, policy(tries=3, retry_until_ms=NOW), None),  # at that very millisecond it may still start
        (0, policy(retry_until_ms=NOW - 1), RetryUntilPassed),
        (0, policy(deadline_ms=NOW), None),
        (0, policy(deadline_ms=NOW - 1), DeadlinePassed),
        (9, policy(tries=3, deadline_ms=NOW - 1), DeadlinePassed),
    ],
)
def test_what_may_start(made: int, by: Policy, error: type[BaseException] | None) -> None:
    refused = before_start(envelope(attempts=made, exceptions=1), by, NOW)
    if error is None:
        assert refused is None
    else:
        assert refused is not None
        assert (refused.attempts, refused.exceptions, type(refused.error)) == (made, 1, error)


# -- whose wish counts -----------------------------------------------------------------------------------------------


def test_the_envelope_goes_before_the_handler() -> None:
    below = policy(tries=9, backoff=Fixed(9), retention_ms=9, retry_until_ms=9, deadline_ms=9, max_exceptions=9)
    asked = envelope(tries=1, backoff=[1, 2], retention_ms=3, retry_until_ms=4, deadline_ms=5, max_exceptions=6)
    assert policy_of(asked, below) == Policy(1, Steps((1, 2)), 4, 5, 6, 3)
    assert policy_of(envelope(), below) == below


def test_an_envelope_may_ask_for_nothing_where_its_handler_asks_for_something() -> None:
    asked = policy_of(envelope(retention_ms=0), policy(retention_ms=60_000))
    assert asked.retention_ms == 0


def after_unknown(job: Envelope, at_ms: int, **members: Any) -> tuple[Outcome, Envelope]:
    """What becomes of a delivery that no handler here takes, and the envelope it leaves."""
    outcome = decide(job, policy(**members), UnknownJob("close"), at_ms, lambda: 0.0)
    assert isinstance(outcome, Release | GiveUp)
    since_ms = outcome.unknown_since_ms if isinstance(outcome, Release) else None
    raw = recounted(encode(job), attempts=outcome.attempts, exceptions=outcome.exceptions, unknown_since_ms=since_ms)
    return outcome, decode(raw)


def test_an_unknown_name_costs_nothing_for_an_hour_and_then_its_tries() -> None:
    job, now, free = envelope(headers={"trace": "1"}), NOW, 0
    waits: list[int] = []
    outcome, job = after_unknown(job, now)
    assert isinstance(outcome, Release)
    assert "The job waits for a worker that has one; this wait counts no attempt." in str(outcome.error)
    while isinstance(outcome, Release) and job.attempts == 0:
        free, waits = free + 1, [*waits, outcome.delay_ms]
        now += outcome.delay_ms
        outcome, job = after_unknown(job, now)
    assert 3_600_000 <= now - NOW < 3_660_000, "since it was first met"
    assert waits[:2] == [2_000, 2_000]
    assert max(waits) == waits[-1] == 60_000
    assert free < 100
    assert (job.attempts, job.headers) == (1, {"trace": "1", UNKNOWN_SINCE: str(NOW)})
    outcome, job = after_unknown(job, now)
    assert (job.attempts, isinstance(outcome, Release)) == (2, True)
    outcome, job = after_unknown(job, now)
    assert isinstance(outcome, GiveUp)
    assert (job.attempts, job.headers) == (3, {"trace": "1"}), "a retry by hand has an hour again"


@pytest.mark.parametrize("limit", ["retry_until_ms", "deadline_ms"])
def test_an_unknown_name_does_not_outlive_its_limits(limit: str) -> None:
    first, job = after_unknown(envelope(), NOW, tries=1, **{limit: NOW + 1})
    assert isinstance(first, Release)
    second, _ = after_unknown(job, NOW + 1, tries=1, **{limit: NOW + 1})
    assert isinstance(second, GiveUp)


@pytest.mark.parametrize("seen", ["", "soon", "9" * 400, str(NOW + 10**9), "٣"])
def test_a_header_of_a_stranger_does_no_harm(seen: str) -> None:
    outcome, job = after_unknown(envelope(headers={UNKNOWN_SINCE: seen}), NOW)
    assert isinstance(outcome, Release)
    assert (job.attempts, job.headers) == (0, {UNKNOWN_SINCE: str(NOW)})


def test_an_error_of_a_handler_ends_the_hour() -> None:
    job = envelope(headers={UNKNOWN_SINCE: str(NOW)})
    outcome = decide(job, policy(), BOOM, NOW, lambda: 0.0)
    assert isinstance(outcome, Release)
    assert decode(recounted(encode(job), attempts=1, exceptions=1)).headers is None
    assert decode(afresh(encode(job), job, NOW)).headers is None


def test_what_php_wrote_keeps_no_header_so_each_delivery_costs_an_attempt() -> None:
    php = b'{"v":1,"id":"a","name":"x","queue":"q","data":{},"attempts":0,"created_ms":1,"laravel":{"job":"x"}}'
    assert keeps_headers(encode(envelope()))
    assert not keeps_headers(php)
    outcome = decide(decode(php), policy(), UnknownJob("x"), NOW, lambda: 0.0, keeps_headers=False)
    assert isinstance(outcome, Release)
    assert (outcome.attempts, outcome.unknown_since_ms) == (1, None)
