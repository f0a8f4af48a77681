"""Is a mover at work? What readiness, health checks and whoever else asks says of a queue."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from delayq.core.views import QueueStats

STILL_MS: Final = 10_000
"""A mover looks every five seconds at least; one that was not there for so long stands still."""


def last_look_ms(stats: Iterable[QueueStats]) -> int:
    """When a mover last looked at any of them; 0 = never."""
    return max((one.mover_tick_ms for one in stats), default=0)


def no_mover(stats: QueueStats, looked_ms: int = 0, called: str = "") -> str:
    """The sentence that says so, or ''. A queue that is paused, or has nothing scheduled, needs none.

    `looked_ms` is when a mover last looked at any queue: a new one, that none has seen yet, is theirs in a second,
    unless they serve other queues. Then its jobs are due and stay where they are. `called` is how the sentence
    calls the queue; '' = by its name.
    """
    called = called or f"the queue {stats.queue}"
    if stats.paused or not stats.scheduled:
        return ""
    if stats.mover_tick_ms:
        still_ms = stats.now_ms - stats.mover_tick_ms
        return f"No mover looked at {called} for {still_ms // 1000} s." if still_ms > STILL_MS else ""
    if max(stats.now_ms - looked_ms, stats.overdue_oldest_ms) > STILL_MS:
        return f"No mover ever looked at {called}."
    return ""
