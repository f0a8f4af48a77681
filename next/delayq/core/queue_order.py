"""The order in which a worker reads its queues.

strict     the given order. All jobs of a queue run before those of later queues, so later queues may starve.
weighted   a new random order for each read. Of three queues with the weights 6, 3 and 1, the first one comes first in
           60 % of all reads.
"""

import random
from collections.abc import Callable, Sequence
from typing import Final

from delayq.core.display import shown
from delayq.core.errors import InvalidInput
from delayq.core.names import check_queue

Order = Callable[[Sequence[str]], Sequence[str]]
"""A function that returns queues in the order to read them."""

MAX_WEIGHT: Final = 1_000


def strict(queues: Sequence[str]) -> Sequence[str]:
    """Return the queues in the given order."""
    return queues


def weighted(weights: dict[str, int]) -> Order:
    """Return a function that sorts queues at random, with larger weights more often in front.

    Each queue draws an exponentially distributed number with its weight as the rate. The smallest number comes first.
    """

    def draw(queues: Sequence[str]) -> Sequence[str]:
        if len(queues) < 2:
            return queues
        return sorted(queues, key=lambda queue: random.expovariate(weights[queue]))

    return draw


def parse_queues(*texts: str) -> list[str]:
    """Return the queues of one or several texts such as `orders,mail`, each once; raises InvalidInput."""
    return list(dict.fromkeys(check_queue(part.strip()) for text in texts for part in text.split(",")))


def parse_weights(text: str) -> dict[str, int]:
    """Read weights such as `critical:6,default:3,low`. A queue without a number has the weight 1. Raises InvalidInput.

    Only a number after the last ':' is a weight, because queue names may contain ':'.
    """
    weights: dict[str, int] = {}
    for part in text.split(","):
        name, colon, digits = part.strip().rpartition(":")
        has_weight = bool(colon) and digits.isascii() and digits.isdigit()
        queue = check_queue(name if has_weight else part.strip())
        weight = int(digits) if has_weight else 1
        if not 1 <= weight <= MAX_WEIGHT:
            raise InvalidInput(
                f"The weight of the queue {shown(queue)} is {weight}.",
                hint=f"Use a weight from 1 to {MAX_WEIGHT:,}.",
                field="weighted",
            )
        first = weights.setdefault(queue, weight)
        if first != weight:
            raise InvalidInput(
                f"The queue {shown(queue)} has two weights, {first} and {weight}.",
                hint="Give each queue one weight.",
                field="weighted",
            )
    return weights
