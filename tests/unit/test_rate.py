"""Rates as people write them, and the pace that keeps to one."""

from __future__ import annotations

import pytest

from delayq.core.errors import InvalidInput
from delayq.core.rate import Pace, Rate, parse_rate


@pytest.mark.parametrize(
    ("text", "spacing_s"), [("10/s", 0.1), ("1/s", 1.0), ("600/m", 0.1), ("1/m", 60.0), ("3600/h", 1.0)]
)
def test_rates(text: str, spacing_s: float) -> None:
    assert parse_rate(text).spacing_s == pytest.approx(spacing_s)


@pytest.mark.parametrize(
    "text", ["", "10", "10/", "/s", "0/s", "-1/s", "1.5/s", "10/d", "10 / s", "10/S", "1" * 9 + "/s"]
)
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="is no rate"):
        parse_rate(text)


def test_a_pace_waits_for_the_rest_of_the_spacing() -> None:
    pace = Pace(Rate(10, 1))
    assert pace.wait_s(100.0) == 0
    assert pace.wait_s(100.0) == pytest.approx(0.1)
    assert pace.wait_s(100.15) == pytest.approx(0.05)


def test_what_was_late_is_not_made_up_for() -> None:
    pace = Pace(Rate(10, 1))
    pace.wait_s(100.0)
    assert pace.wait_s(200.0) == 0
    assert pace.wait_s(200.0) == pytest.approx(0.1)


def test_without_a_rate_nothing_waits() -> None:
    pace = Pace(None)
    assert [pace.wait_s(1.0) for _ in range(3)] == [0, 0, 0]
