"""Whether this process and the server look at the same clock."""

from __future__ import annotations

import time
from typing import Any


def offset_us(client: Any, tries: int = 50) -> tuple[float, float]:
    """Server's TIME minus this process's clock lies between these two values, in microseconds.

    On one machine both read the system's clock, so the interval holds 0; it is asked all the same, because "never
    early" is a statement about the server's time.
    """
    low, high = float("-inf"), float("inf")
    for _ in range(tries):
        before = time.time_ns()
        seconds, micros = client.time()
        after = time.time_ns()
        server_us = seconds * 1_000_000 + micros
        low, high = max(low, server_us - after / 1_000), min(high, server_us + 1 - before / 1_000)
    return low, high
