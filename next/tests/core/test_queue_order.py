"""The order of queues: how often each of several weighted ones comes first."""

from collections import Counter

import pytest

from delayq.core.errors import InvalidInput
from delayq.core.queue_order import parse_weights, weighted


def test_a_queue_comes_first_in_proportion_to_its_weight() -> None:
    draw = weighted({"critical": 6, "default": 3, "low": 1})
    first = Counter(draw(["low", "critical", "default"])[0] for _ in range(20_000))
    assert 11_500 < first["critical"] < 12_500
    assert 5_500 < first["default"] < 6_500
    assert 1_700 < first["low"] < 2_300


def test_weights_are_read_from_text() -> None:
    assert parse_weights("critical:6, default:3,low") == {"critical": 6, "default": 3, "low": 1}


@pytest.mark.parametrize("text", ["a:0", "a:1001", "a:1,a:2", "a:x y", ""])
def test_weights_that_cannot_be_used_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse_weights(text)
