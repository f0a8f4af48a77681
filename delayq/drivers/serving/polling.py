"""Waiting for backends that cannot say when there is work: look, sleep a little, look again."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from delayq.drivers.base import Delivery


def poll(
    reserve: Callable[[str, int], list[Delivery]], queues: Sequence[str], seconds: float, interval_s: float
) -> list[Delivery]:
    """`Broker.wait` by polling: sleep for the interval, at most `seconds`, then reserve one job of the first queue
    that has one. A worker looks on by itself, so one sleep is all a call does."""
    time.sleep(max(0.0, min(seconds, interval_s)))
    for queue in queues:
        if found := reserve(queue, 1):
            return found
    return []
