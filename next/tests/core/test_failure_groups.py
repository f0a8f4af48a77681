"""What messages of one group share."""

import pytest

from delayq.core.failure_groups import common_message


@pytest.mark.parametrize(
    ("message", "common"),
    [
        ("no order 42", "no order #"),
        ("no order 'a b' here", "no order # here"),
        ("the shop's order isn't there", "the shop's order isn't there"),
        ("job 0198c1d2-7e1f-7abc-8def-0123456789ab is gone", "job # is gone"),
        ("commit 3f2a91c0 failed", "commit # failed"),
        ("at 2026-11-27 14:48:20", "at # #"),
        ("10.0.0.1:6379 refused", "# refused"),
        ("object at 0x7f37d6438ea0", "object at #"),
        ("two\nlines   and tabs\t.", "two lines and tabs ."),
        ("x" * 2_000, "x" * 300),
    ],
)
def test_details_are_left_out(message: str, common: str) -> None:
    assert common_message(message) == common
