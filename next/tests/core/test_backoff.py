"""How long a job waits before it is tried again, in a program and on the wire."""

from datetime import timedelta
from typing import Any

import pytest

from delayq.core.backoff import (
    DEFAULT,
    LADDER,
    Backoff,
    BackoffSpec,
    Computed,
    Exponential,
    Fixed,
    Steps,
    from_wire,
    parse_backoff,
)
from delayq.core.errors import InvalidInput, UnreadableEnvelope

ERROR = ValueError("why")
MINUTE = 60_000


def waits(backoff: Backoff, attempts: int, rand: float = 0.0) -> list[int]:
    return [backoff.delay_ms(attempt, ERROR, lambda: rand) for attempt in range(1, attempts + 1)]


async def slowly(attempt: int, error: BaseException) -> str:
    return "5s"


@pytest.mark.parametrize(
    ("spec", "first_waits", "wire"),
    [
        ("10s", [10_000] * 4, 10_000),
        (timedelta(seconds=10), [10_000] * 4, 10_000),
        (["10s", "1m"], [10_000, MINUTE, MINUTE, MINUTE], [10_000, MINUTE]),
        ("10s, 1m", [10_000, MINUTE, MINUTE, MINUTE], [10_000, MINUTE]),
        (("1s", timedelta(0)), [1_000, 0, 0, 0], [1_000, 0]),
        ("ladder", [MINUTE, 3 * MINUTE, 5 * MINUTE, 7 * MINUTE], [(2 * n + 1) * MINUTE for n in range(24)]),
        (
            Exponential("1s", 3, "10s", jitter=False),
            [1_000, 3_000, 9_000, 10_000],
            {"base_ms": 1_000, "factor": 3, "cap_ms": 10_000, "jitter": False},
        ),
    ],
)
def test_a_backoff_waits_and_travels(spec: BackoffSpec, first_waits: list[int], wire: Any) -> None:
    backoff = parse_backoff(spec)
    assert waits(backoff, 4) == first_waits
    assert backoff.to_wire() == wire
    assert waits(from_wire(wire), 4) == first_waits


def test_the_default_grows_from_five_seconds_to_an_hour() -> None:
    assert DEFAULT.to_wire() == {"base_ms": 5_000, "factor": 2.0, "cap_ms": 3_600_000, "jitter": True}
    assert waits(DEFAULT, 4, rand=0.0) == [5_000, 10_000, 20_000, 40_000]
    assert waits(DEFAULT, 4, rand=0.999_999) == [10_000, 20_000, 40_000, 80_000]


@pytest.mark.parametrize("attempt", [11, 50, 10_000])
def test_near_the_cap_the_wait_is_drawn_between_half_of_it_and_the_cap(attempt: int) -> None:
    assert DEFAULT.delay_ms(attempt, ERROR, lambda: 0.0) == 1_800_000
    assert DEFAULT.delay_ms(attempt, ERROR, lambda: 0.999_999_999) == 3_600_000


def test_the_ladder_has_taken_n_squared_minutes_after_n_attempts() -> None:
    assert [sum(waits(LADDER, n)) for n in (1, 5, 24)] == [MINUTE, 25 * MINUTE, 576 * MINUTE]


def test_a_function_gets_the_attempt_and_the_error_and_does_not_travel() -> None:
    backoff = parse_backoff(lambda attempt, error: f"{attempt * len(str(error))}s")
    assert isinstance(backoff, Computed)
    assert waits(backoff, 2) == [3_000, 6_000]
    with pytest.raises(InvalidInput, match="A backoff function cannot travel with a job"):
        backoff.to_wire()
    with pytest.raises(InvalidInput, match="backoff 5 is not a duration"):
        parse_backoff(lambda attempt, error: 5).delay_ms(1, ERROR)  # type: ignore[return-value,arg-type]


@pytest.mark.parametrize(
    "spec",
    ["soon", "", "10s,", [], ["10s"] * 101, ["soon"], [None], 5.0, None, b"5s", int, slowly, ["-5s"], "4000d", {}],
)
def test_what_is_no_backoff_is_refused(spec: Any) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_backoff(spec)
    assert refused.value.field == "backoff"


@pytest.mark.parametrize(
    "members",
    [
        {"base": "0s"},
        {"base": "2h"},
        {"factor": 0.5},
        {"factor": 1001},
        {"factor": float("nan")},
        {"factor": True},
        {"factor": "2"},
        {"cap": "1s"},
    ],
)
def test_an_exponential_has_bounds(members: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=r"Use a base above 0 and not above cap, and a factor from 1 to 1000\."):
        Exponential(**members)


@pytest.mark.parametrize(
    "wire", [-1, True, None, 2**60, [], [1, -1], [1] * 101, ["soon"], {"base_ms": 0}, {"factor": None}, {"cap_ms": [1]}]
)
def test_an_envelope_with_another_backoff_cannot_be_read(wire: object) -> None:
    with pytest.raises(UnreadableEnvelope, match="The backoff of the envelope cannot be used"):
        from_wire(wire)


def test_members_of_a_later_release_are_passed_over() -> None:
    assert from_wire({"base_ms": 1_000, "spread": 3}) == Exponential(base=1_000)
    assert from_wire({}) == DEFAULT


def test_whole_numbers_are_milliseconds_as_in_an_envelope() -> None:
    assert Fixed(10).delay_ms(1, ERROR) == 10
    assert Steps([10, "1s"]).to_wire() == [10, 1_000]
