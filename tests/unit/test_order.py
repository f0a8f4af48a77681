"""The order in which queues are read: as named, or drawn by weight; and how weights are written."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from delayq.core.errors import InvalidInput, InvalidName
from delayq.core.order import Weighted, order_of, parse_weights, strict

QUEUES = ("critical", "default", "low")
DRAWS = 20_000


def drawn(weights: dict[str, int], queues: tuple[str, ...]) -> list[tuple[str, ...]]:
    draw = Weighted(weights, Random(7))
    return [tuple(draw(queues)) for _ in range(DRAWS)]


def test_strict_is_as_named() -> None:
    order = order_of(QUEUES, ())
    assert {tuple(order(QUEUES)) for _ in range(50)} == {QUEUES}
    assert order is strict


def test_each_draw_holds_every_queue_once() -> None:
    assert {tuple(sorted(draw)) for draw in drawn({"critical": 6, "default": 3, "low": 1}, QUEUES)} == {QUEUES}


def test_who_comes_first_by_weight() -> None:
    """Six, three and one in ten; 20,000 draws stray by less than 1.5 in a hundred."""
    firsts = Counter(draw[0] for draw in drawn({"critical": 6, "default": 3, "low": 1}, QUEUES))
    shares = {queue: firsts[queue] / DRAWS for queue in QUEUES}
    assert shares == pytest.approx({"critical": 0.6, "default": 0.3, "low": 0.1}, abs=0.015)


def test_the_rest_is_drawn_by_weight_too() -> None:
    """Behind critical, default is three times as likely as low."""
    behind = [draw[1] for draw in drawn({"critical": 6, "default": 3, "low": 1}, QUEUES) if draw[0] == "critical"]
    assert behind.count("default") / len(behind) == pytest.approx(0.75, abs=0.02)


def test_a_queue_left_out_leaves_its_share_to_the_others() -> None:
    draws = drawn({"critical": 6, "default": 3, "low": 1}, ("default", "low"))
    assert sum(draw[0] == "low" for draw in draws) / DRAWS == pytest.approx(0.25, abs=0.015)


def test_two_processes_do_not_draw_the_same() -> None:
    one, other = order_of(QUEUES, (1, 1, 1)), order_of(QUEUES, (1, 1, 1))
    assert [tuple(one(QUEUES)) for _ in range(100)] != [tuple(other(QUEUES)) for _ in range(100)]


@pytest.mark.parametrize(
    ("text", "weights"),
    [
        ("critical:6,default:3,low:1", {"critical": 6, "default": 3, "low": 1}),
        ("a, b:2 ,c", {"a": 1, "b": 2, "c": 1}),
        ("shop:mails:3", {"shop:mails": 3}),
        ("shop:mails", {"shop:mails": 1}),
        ("tenant:42:7", {"tenant:42": 7}),
        ("a:007,b:1000", {"a": 7, "b": 1_000}),
        ("a:", {"a:": 1}),
        ("a:2,a:2", {"a": 2}),
    ],
)
def test_weights_as_they_are_written(text: str, weights: dict[str, int]) -> None:
    assert parse_weights(text) == weights
    assert list(parse_weights(text)) == list(weights)


@pytest.mark.parametrize("text", ["a:0", "a:00", "a:1001", "a:" + "9" * 5_000, "a:1,a:2", "a,a:2"])
def test_weights_that_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_weights(text)
    assert "'a'" in refused.value.message
    assert refused.value.hint


@pytest.mark.parametrize("text", ["", "a,,b", ":3", "a:-1 x", "a b:2", "a:１"])
def test_names_that_are_refused(text: str) -> None:
    with pytest.raises(InvalidName):
        parse_weights(text)
