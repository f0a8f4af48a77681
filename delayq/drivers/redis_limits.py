"""Limits on Redis: the two shells over a worker's own connections. Nothing connects before the first question."""

from __future__ import annotations

from typing import TypeVar

from delayq.core.limiting import Question
from delayq.core.options import Options
from delayq.redis.aio import AsyncClient
from delayq.redis.client import Client
from delayq.redis.connect import Connector
from delayq.redis.limiting import LimitVerbs
from delayq.redis.verbs import Clock, server_clock

T = TypeVar("T")


class RedisLimits:
    """`Limits` on one Redis. Safe to share between threads and event loops of one process."""

    def __init__(self, connector: Connector, options: Options, clock: Clock = server_clock) -> None:
        patient = connector.patient()  # the job that asks waits, and nobody else
        self._client = Client(patient, options, clock)
        self._aclient = AsyncClient(patient, options, clock)
        self._verbs = LimitVerbs(self._client.verbs)

    def ask(self, question: Question[T], /) -> T:
        """One script call where nobody is in the way. Raises `BackendError` within 5 seconds."""
        return self._client.run(self._verbs.answer(question))

    async def aask(self, question: Question[T], /) -> T:
        """As `ask`, awaited."""
        return await self._aclient.run(self._verbs.answer(question))
