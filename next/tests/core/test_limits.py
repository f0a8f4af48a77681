"""Rates, and the names and keys of limits."""

from typing import Any

import pytest

from delayq.core.errors import InvalidInput
from delayq.core.limits import (
    LimitInfo,
    RateLimit,
    check_key,
    check_limit,
    check_limit_name,
    check_rates,
    key_of_text,
)

WRONG: Any = "60"
NUMBER: Any = 7


def test_rates() -> None:
    assert RateLimit.per_second(5) == RateLimit(5, 1_000, 5)
    assert RateLimit.per_minute(60) == RateLimit(60, 60_000, 60)
    assert RateLimit.per_hour(2) == RateLimit(2, 3_600_000, 2)
    assert RateLimit.per_day(1) == RateLimit(1, 86_400_000, 1)
    assert RateLimit.bucket(10, per="5m", burst=2) == RateLimit(10, 300_000, 2)


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: RateLimit.per_minute(0), "limit"),
        (lambda: RateLimit.per_minute(-1), "limit"),
        (lambda: RateLimit.per_minute(True), "limit"),
        (lambda: RateLimit.per_minute(WRONG), "limit"),
        (lambda: RateLimit.bucket(1, per="0s"), "per"),
        (lambda: RateLimit.bucket(1, per="60"), "per"),
        (lambda: RateLimit.bucket(1, burst=0), "burst"),
        (lambda: check_limit(0), "limit"),
        (lambda: check_limit(1_000_001), "limit"),
        (lambda: check_limit_name("a b"), "name"),
        (lambda: check_limit_name("a{b"), "name"),
        (lambda: check_limit_name("a}b"), "name"),
        (lambda: check_limit_name(""), "name"),
        (lambda: check_limit_name(NUMBER), "name"),
        (lambda: check_key("a\n"), "key"),
        (lambda: check_key("é" * 128), "key"),
        (lambda: check_key(NUMBER), "key"),
        (lambda: check_rates([]), "rate"),
        (lambda: check_rates(WRONG), "rate"),
        (lambda: check_rates([WRONG]), "rate"),
        (lambda: check_rates([RateLimit.per_day(1)] * 11), "rate"),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_field_and_a_next_step(make: Any, field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        make()
    assert (refused.value.field, refused.value.hint != "") == (field, True)


def test_a_text_becomes_a_key() -> None:
    assert key_of_text("New York {1}") == "New York {1}"
    assert check_key("") == ""
    assert len(key_of_text("a" * 256)) == len(key_of_text("\ud800")) == len(key_of_text("a\n")) == 40
    assert key_of_text("a" * 256) != key_of_text("a" * 257)


def test_the_places_of_all_keys_are_added_up() -> None:
    assert LimitInfo("mail", 9, 1, [("ann", 2), ("bob", 1)]).held == 3
