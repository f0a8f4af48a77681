"""The head `Retry-After`."""

from __future__ import annotations

import pytest

from delayq.jobs.notifications.retry_after import retry_after_s

NOW_S = 1_700_000_000.0  # Tue, 14 Nov 2023 22:13:20 GMT


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("120", 120.0),
        (" 0 ", 0.0),
        ("Tue, 14 Nov 2023 22:15:20 GMT", 120.0),
        ("Tuesday, 14-Nov-23 22:15:20 GMT", 120.0),
        ("Tue Nov 14 22:15:20 2023", 120.0),
        ("Tue, 14 Nov 2023 23:15:20 +0100", 120.0),
    ],
)
def test_seconds_or_a_date(value: str, seconds: float) -> None:
    assert retry_after_s(value, NOW_S) == seconds


@pytest.mark.parametrize(
    "value",
    ["", "-1", "1.5", "soon", "１２", "Tue, 14 Nov 2023 22:13:20 GMT", "Wed, 21 Oct 2015 07:28:00 GMT",
     "Tue, 99 Nov 2023 22:15:20 GMT", "Tue, 14 Nov 99999999999 22:15:20 GMT", "\x00", "," * 100],
)  # fmt: skip
def test_what_says_nothing(value: str) -> None:
    assert retry_after_s(value, NOW_S) is None


def test_a_number_of_any_length_is_a_number() -> None:
    assert retry_after_s("9" * 400, NOW_S) == 999_999_999_999.0
