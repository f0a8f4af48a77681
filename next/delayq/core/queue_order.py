"""In which order a worker reads its queues.

strict     as they are named: what is in an earlier queue goes before all of a later one, which may starve
weighted   drawn for each read, by weight: a queue of weight 6 beside others of 3 and 1 comes first six times in ten
"""

import random
from collections.abc import Callable, Sequence
from typing import Final

from delayq.core.display import shown
from delayq.core.errors import InvalidInput
from delayq.core.names import check_queue

Order = Callable[[Sequence[str]], Sequence[str]]
"""Puts queues into the order in which they are read."""

MAX_WEIGHT: Final = 1_000


def strict(queues: Sequence[str]) -> Sequence[str]:
    """Return the queues as they are named."""
    return queues


def weighted(weights: dict[str, int]) -> Order:
    """Return an order that draws. Each queue gets an exponentially distributed wait with its weight as the rate."""

    def draw(queues: Sequence[str]) -> Sequence[str]:
        if len(queues) < 2:
            return queues
        return sorted(queues, key=lambda queue: random.expovariate(weights[queue]))

    return draw


def parse_queues(*texts: str) -> list[str]:
    """Read `orders,mail`, also when it comes in several texts; raises InvalidInput."""
    return list(dict.fromkeys(check_queue(part.strip()) for text in texts for part in text.split(",")))


def parse_weights(text: str) -> dict[str, int]:
    """Read `critical:6,default:3,low`; a queue without a number weighs 1. Raises InvalidInput.

    The number stands behind the last ':', because names may hold some too.
    """
    weights: dict[str, int] = {}
    for part in text.split(","):
        name, colon, digits = part.strip().rpartition(":")
        has_weight = bool(colon) and digits.isascii() and digits.isdigit()
        queue = check_queue(name if has_weight else part.strip())
        weight = int(digits) if has_weight else 1
        if not 1 <= weight <= MAX_WEIGHT or weights.setdefault(queue, weight) != weight:
            raise InvalidInput(
                f"The weight of the queue {shown(queue)} is {weight}.",
                hint=f"Give each queue one weight from 1 to {MAX_WEIGHT:,}.",
                field="weighted",
            )
    return weights
