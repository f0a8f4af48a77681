"""Limits while a test travels: by the test's time, and without connections that belong to an event loop."""

from __future__ import annotations

from typing import TypeVar

from delayq.core.limiting import Question
from delayq.drivers.redis_limits import RedisLimits

T = TypeVar("T")


class TravelLimits(RedisLimits):
    """As on a worker. One job runs at a time, so nobody else waits while somebody asks."""

    async def aask(self, question: Question[T], /) -> T:
        """At once."""
        return self.ask(question)
