"""Which holders of places are gone. A generator like those of `verbs`, which it is given.

A holder is a delivery. It is gone when its job has another entry, or none; that is how it usually ends, and what the
janitor of its queue does for a worker that vanished. Where a queue has no janitor left it is gone, too, once nobody has
renewed it for its lease and then for a whole lease after that was seen: idle times alone lie after a stall or a
failover, and in that time every live worker renews.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from delayq.core.shards import names_a_shard
from delayq.redis.calls import limit
from delayq.redis.calls.deliver import Held

if TYPE_CHECKING:
    from delayq.redis.verbs import Flow, Verbs

MOST_KEPT: Final = 1_000
"""Holders in doubt. One that is forgotten is only found out later."""


def parts_of(holder: str) -> tuple[str, str, str]:
    """Queue, id and entry of a holder. What is none, and somebody else wrote there, comes back as an id alone."""
    parts = holder.split(" ")
    return (parts[0], parts[1], parts[2]) if len(parts) == 3 and all(parts) else ("", holder, "")


class Holders:
    """Remembers whom nobody renews. Safe to share between threads: at worst a doubt begins anew."""

    def __init__(self, verbs: Verbs, clock: Callable[[], float] = time.monotonic) -> None:
        self._verbs = verbs
        self._clock = clock
        self._in_doubt_since: dict[str, float] = {}

    def gone(self, holders: Sequence[str]) -> Flow[list[str]]:
        """Those of these holders (`queue id entry`) that are gone; what is no delivery never was one."""
        by_queue: dict[str, list[tuple[str, Held]]] = {}
        gone: list[str] = []
        for holder in holders:
            queue, job_id, entry = parts_of(holder)
            if names_a_shard(queue):
                by_queue.setdefault(queue, []).append((holder, Held(job_id, entry)))
            else:
                gone.append(holder)
        for queue, rows in by_queue.items():
            seen: limit.Kept = yield limit.kept(self._verbs.shard(queue), [held for _, held in rows])
            for (holder, _), idle_ms in zip(rows, seen.idle_ms, strict=True):
                if idle_ms is None or self._left_alone(holder, idle_ms, seen.lease_ms):
                    self._in_doubt_since.pop(holder, None)
                    gone.append(holder)
        return gone

    def _left_alone(self, holder: str, idle_ms: int, lease_ms: int) -> bool:
        if idle_ms < lease_ms:
            self._in_doubt_since.pop(holder, None)
            return False
        if len(self._in_doubt_since) >= MOST_KEPT:
            self._in_doubt_since.clear()
        now = self._clock()
        doubted_ms = (now - self._in_doubt_since.setdefault(holder, now)) * 1000
        if idle_ms < doubted_ms:  # renewed since, and left again
            self._in_doubt_since[holder] = now
            return False
        return doubted_ms >= lease_ms
