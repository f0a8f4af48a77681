"""Backoff: what each kind answers, how it is written, how it travels."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delayq.core.backoff import (
    DEFAULT,
    Backoff,
    Computed,
    Exponential,
    Fixed,
    Steps,
    from_wire,
    parse_backoff,
    to_wire,
)
from delayq.core.errors import BadEnvelope, InvalidDuration, InvalidInput
from delayq.core.when import MAX_DURATION_MS

HOUR = 3_600_000
ALMOST_ONE = 1 - 2**-53  # the largest random.random() can give


def low() -> float:
    return 0.0


def high() -> float:
    return ALMOST_ONE


def unused() -> float:
    raise AssertionError("a delay without jitter draws nothing")


def delays(backoff: Backoff, attempts: list[int], rand: Callable[[], float] = unused) -> list[int]:
    return [backoff.delay_ms(attempt, None, rand) for attempt in attempts]


def test_fixed_is_the_same_after_every_attempt() -> None:
    assert delays(Fixed(10_000), [1, 2, 10_000]) == [10_000] * 3
    assert delays(Fixed(0), [1]) == [0]


def test_steps_follow_the_attempts_and_the_last_repeats() -> None:
    assert delays(Steps((1, 20, 300)), [1, 2, 3, 4, 10_000]) == [1, 20, 300, 300, 300]


@pytest.mark.parametrize("backoff", [Fixed(7), Steps((7, 8)), Exponential(base_ms=7, jitter=False)])
def test_an_attempt_below_1_counts_as_the_first(backoff: Backoff) -> None:
    assert delays(backoff, [0, -5]) == [7, 7]


def test_exponential_without_jitter() -> None:
    backoff = Exponential(base_ms=1_000, factor=3, cap_ms=60_000, jitter=False)
    assert delays(backoff, [1, 2, 3, 4, 5, 10_000]) == [1_000, 3_000, 9_000, 27_000, 60_000, 60_000]
    assert delays(Exponential(base_ms=500, factor=1, jitter=False), [1, 10_000]) == [500, 500]


def test_the_default_starts_at_5_seconds_and_ends_at_an_hour() -> None:
    assert Exponential(base_ms=5_000, factor=2.0, cap_ms=HOUR, jitter=True) == DEFAULT
    # From each step up to the next, 5 s × 2^(attempt - 1); from the 10th on, the upper half of the hour.
    assert delays(DEFAULT, [1, 2, 3, 9], low) == [5_000, 10_000, 20_000, 1_280_000]
    assert delays(DEFAULT, [1, 2, 3, 9], high) == [10_000, 20_000, 40_000, 2_560_000]
    assert delays(DEFAULT, [10, 11, 10_000, 10**400], low) == [HOUR // 2] * 4
    assert delays(DEFAULT, [10, 11, 10_000, 10**400], high) == [HOUR] * 4
    assert delays(DEFAULT, [1], lambda: 0.5) == [7_500]


exponentials = st.builds(
    lambda base, more, factor, jitter: Exponential(
        base_ms=base, cap_ms=min(base + more, MAX_DURATION_MS), factor=factor, jitter=jitter
    ),
    st.integers(1, MAX_DURATION_MS),
    st.integers(0, MAX_DURATION_MS),
    st.floats(1, 1_000),
    st.booleans(),
)
attempts = st.integers(1, 50) | st.integers(1, 10**9) | st.just(10_000)


@given(backoff=exponentials, attempt=attempts, drawn=st.floats(0, ALMOST_ONE))
def test_exponential_stays_within_its_bounds(backoff: Exponential, attempt: int, drawn: float) -> None:
    delay = backoff.delay_ms(attempt, None, lambda: drawn)
    assert type(delay) is int
    floor = min(backoff.base_ms, backoff.cap_ms / 2) if backoff.jitter else backoff.base_ms
    assert floor <= delay <= backoff.cap_ms <= MAX_DURATION_MS


@given(backoff=exponentials)
def test_exponential_never_shrinks_for_one_and_the_same_draw(backoff: Exponential) -> None:
    found = delays(backoff, list(range(1, 40)), lambda: 0.25)
    assert all(left <= right for left, right in pairwise(found))


@given(backoff=exponentials, attempt=attempts)
def test_jitter_spreads_over_at_least_half_of_the_longest_delay(backoff: Exponential, attempt: int) -> None:
    spread = backoff.delay_ms(attempt, None, high) - backoff.delay_ms(attempt, None, low)
    longest = backoff.delay_ms(attempt, None, high)
    assert spread >= longest // 2 - 1 if backoff.jitter else spread == 0


def test_computed_is_given_attempt_and_error() -> None:
    seen: list[tuple[int, BaseException | None]] = []

    def decide(attempt: int, error: BaseException | None) -> str | timedelta:
        seen.append((attempt, error))
        return timedelta(seconds=attempt) if error is None else "1h30m"

    error = ValueError("no")
    assert Computed(decide).delay_ms(3, None, unused) == 3_000
    assert Computed(decide).delay_ms(1, error, unused) == 5_400_000
    assert seen == [(3, None), (1, error)]


@pytest.mark.parametrize("said", [None, 5, 5.0, True, "5", "-5m", timedelta(-1), "11000d", float("nan"), b"5m"])
def test_a_computed_delay_is_checked_and_the_function_named(said: object) -> None:
    def my_backoff(attempt: int, error: BaseException | None) -> str:
        return said  # type: ignore[return-value]

    with pytest.raises(InvalidDuration, match=r"my_backoff.* gave no delay"):
        Computed(my_backoff).delay_ms(1, None, unused)


def test_what_a_computed_function_raises_goes_through() -> None:
    def broken(attempt: int, error: BaseException | None) -> str:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        Computed(broken).delay_ms(1, None, unused)


def function(attempt: int, error: BaseException | None) -> str:
    return "5s"


@pytest.mark.parametrize(
    ("spec", "backoff"),
    [
        ("10s", Fixed(10_000)),
        ("0s", Fixed(0)),
        ("PT1M", Fixed(60_000)),
        (timedelta(minutes=1), Fixed(60_000)),
        ("10s,1m", Steps((10_000, 60_000))),
        (["10s", "1m"], Steps((10_000, 60_000))),
        (("10s", timedelta(minutes=1)), Steps((10_000, 60_000))),
        (["10s"], Steps((10_000,))),
        (["1s"] * 100, Steps((1_000,) * 100)),
        (",".join(["1s"] * 100), Steps((1_000,) * 100)),
        (function, Computed(function)),
        (Fixed(5), Fixed(5)),
        (DEFAULT, DEFAULT),
    ],
)
def test_a_backoff_is_read(spec: object, backoff: Backoff) -> None:
    assert parse_backoff(spec) == backoff  # type: ignore[arg-type]


async def waiting(attempt: int, error: BaseException | None) -> str:
    return "5s"


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ("", "empty"),
        ("10", "no unit"),
        ("10s,", "empty"),
        (",10s", "empty"),
        ("10s, 1m", "white space"),
        ("10s;1m", "no duration"),
        ("-10s", "sign"),
        ("11000d", "longer than 10 years"),
        (10, "no backoff"),
        (None, "no backoff"),
        (b"10s", "no backoff"),
        ({"10s"}, "no backoff"),
        (iter(["10s"]), "no backoff"),
        (Fixed, "no backoff"),
        ([], "no steps"),
        ([10], "no unit"),
        ([["10s"]], "neither text nor a timedelta"),
        (["1s"] * 101, "more than 100 steps"),
        (",".join(["1s"] * 101), "more than 100 steps"),
        (range(10**12), "more than 100 steps"),
        (timedelta(-1), "negative"),
        (waiting, "async"),
    ],
)
def test_a_backoff_is_refused(spec: object, why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        parse_backoff(spec)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "make",
    [
        lambda: Fixed(-1),
        lambda: Fixed(MAX_DURATION_MS + 1),
        lambda: Fixed(1.0),  # type: ignore[arg-type]
        lambda: Fixed(True),
        lambda: Steps(()),
        lambda: Steps((1, -1)),
        lambda: Exponential(base_ms=0),
        lambda: Exponential(cap_ms=0),
        lambda: Exponential(base_ms=2, cap_ms=1),
        lambda: Exponential(cap_ms=MAX_DURATION_MS + 1),
        lambda: Exponential(factor=0.99),
        lambda: Exponential(factor=float("nan")),
        lambda: Exponential(factor=float("inf")),
        lambda: Exponential(factor=1_001),
        lambda: Exponential(factor=True),
        lambda: Exponential(factor="2"),  # type: ignore[arg-type]
        lambda: Exponential(jitter=1),  # type: ignore[arg-type]
    ],
)
def test_impossible_figures_are_refused(make: Callable[[], Backoff]) -> None:
    with pytest.raises(InvalidInput):
        make()


@pytest.mark.parametrize(
    ("backoff", "wire"),
    [
        (Fixed(10_000), "10000"),
        (Steps((10_000, 60_000)), "[10000, 60000]"),
        (DEFAULT, '{"base_ms": 5000, "factor": 2.0, "cap_ms": 3600000, "jitter": true}'),
    ],
)
def test_the_wire_form(backoff: Backoff, wire: str) -> None:
    assert json.dumps(to_wire(backoff)) == wire


@given(
    backoff=st.builds(Fixed, st.integers(0, MAX_DURATION_MS))
    | st.builds(Steps, st.lists(st.integers(0, MAX_DURATION_MS), min_size=1, max_size=100).map(tuple))
    | exponentials
)
def test_what_is_sent_reads_back_the_same(backoff: Backoff) -> None:
    assert from_wire(json.loads(json.dumps(to_wire(backoff)))) == backoff


def test_a_computed_one_does_not_travel() -> None:
    with pytest.raises(InvalidInput, match="'function' cannot travel"):
        to_wire(Computed(function))


def test_absent_members_have_defaults_and_unknown_ones_are_left_alone() -> None:
    assert from_wire({"base_ms": 100, "colour": "red"}) == Exponential(base_ms=100)
    assert from_wire({"factor": 3}) == Exponential(factor=3)
    assert from_wire({}) == DEFAULT


@pytest.mark.parametrize(
    "wire",
    [
        None, True, "10s", 1.5, -1, MAX_DURATION_MS + 1, pytest.param(10**5000, id="huge"),
        [], [None], [-1], ["10s"], [[1]], [1] * 101,
        {"base_ms": "5s"}, {"base_ms": None}, {"factor": "2"}, {"factor": None},
        pytest.param({"factor": 10**400}, id="huge factor"), {"cap_ms": 1},
        {"jitter": None}, {"jitter": 0}, float("nan"),
    ],
)  # fmt: skip
def test_a_damaged_wire_form_is_a_bad_envelope(wire: object) -> None:
    with pytest.raises(BadEnvelope, match="backoff cannot be used"):
        from_wire(wire)


def test_the_ladder_by_its_name() -> None:
    ladder = parse_backoff("ladder")
    assert isinstance(ladder, Steps)
    minutes = [ladder.delay_ms(attempt, None, lambda: 0.0) / 60_000 for attempt in range(1, 31)]
    assert minutes == [2 * n + 1 for n in range(24)] + [47] * 6
    assert from_wire(to_wire(ladder)) == ladder
