"""In which order a worker reads its queues.

strict     as they were named: what is in an earlier queue goes before all of a later one, which may starve
weighted   drawn anew for each read, by weight and without replacement: a queue of weight 6 beside others of
           3 and 1 comes first six times in ten, and none is kept waiting for ever
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Final, TypeAlias

from delayq.core.errors import InvalidInput
from delayq.core.names import check_queue
from delayq.core.shown import shown

Order: TypeAlias = Callable[[Sequence[str]], Sequence[str]]
"""Puts queues that may be read now, given as they were named, into the order in which to read them."""

MOST: Final = 1_000
"""The largest weight."""


def strict(queues: Sequence[str]) -> Sequence[str]:
    """As they were named."""
    return queues


class Weighted:
    """Draws an order. Belongs to one process: copies of `random` would draw the same in all of them.

    Each queue gets a waiting time that is exponentially distributed with its weight as the rate. The shortest comes
    first with a probability of its weight among all, and so on among the rest.
    """

    def __init__(self, weights: Mapping[str, int], random: Random | None = None) -> None:
        self._weights = dict(weights)
        self._random = random or Random()

    def __call__(self, queues: Sequence[str]) -> Sequence[str]:
        """A new draw of these; raises `KeyError` for one without a weight."""
        if len(queues) < 2:
            return queues
        return sorted(queues, key=self._wait)

    def _wait(self, queue: str) -> float:
        return self._random.expovariate(self._weights[queue])


def order_of(queues: Sequence[str], weights: Sequence[int]) -> Order:
    """Weighted, with a weight for each queue; strict when there are no weights."""
    return Weighted(dict(zip(queues, weights, strict=True))) if weights else strict


def parse_weights(text: str) -> dict[str, int]:
    """Read `critical:6,default:3,low` (a queue without a number weighs 1).

    The number stands after the last ':', for names may hold some too. Raises `InvalidName` for what cannot name a
    queue, and `InvalidInput` for a weight that is none or for two weights of one queue.
    """
    weights: dict[str, int] = {}
    for part in text.split(","):
        queue, weight = _parsed(part.strip())
        if weights.setdefault(queue, weight) != weight:
            raise InvalidInput(
                f"The queue {shown(queue)} is given two weights, {weights[queue]} and {weight}.",
                hint="Name each queue once.",
            )
    return weights


def _parsed(part: str) -> tuple[str, int]:
    name, colon, digits = part.rpartition(":")
    if not (colon and digits.isascii() and digits.isdigit()):
        return check_queue(part), 1
    queue = check_queue(name)
    significant = digits.lstrip("0")
    if not significant or len(significant) > len(str(MOST)) or int(significant) > MOST:
        raise InvalidInput(
            f"The queue {shown(queue)} cannot have the weight {shown(digits)}.",
            hint=f"Use 1 to {MOST}; for a queue whose name ends in a number add the weight: {shown(part + ':1')}.",
        )
    return queue, int(significant)
