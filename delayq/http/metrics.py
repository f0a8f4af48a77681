"""/metrics: the state of Redis for Prometheus. One look serves everybody who asks within five seconds."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from fastapi import APIRouter, Request, Response

from delayq import __version__
from delayq.core.errors import BackendError
from delayq.core.observed import Observed
from delayq.http.access import Reader
from delayq.http.problems import Refused, plain
from delayq.http.service import LOG, Service
from delayq.redis.observing import observe

CACHED_S: Final = 5.0


class Looks:
    """The last look at some queues, or at all, and a new one when it is too old."""

    def __init__(self, service: Service, queues: tuple[str, ...]) -> None:
        self._service = service
        self._queues = queues
        self._counted: dict[str, Mapping[str, int]] = {}
        self._rest: Counter[str] = Counter()
        self._lock = asyncio.Lock()
        self._seen = Observed(reachable=False)
        self._until = float("-inf")

    async def last(self) -> Observed:
        """What was seen, five seconds ago at most; of a Redis that does not answer, only that."""
        async with self._lock:
            if time.monotonic() >= self._until:
                self._seen = await asyncio.to_thread(self._look)
                self._until = time.monotonic() + CACHED_S
            return self._seen

    def _look(self) -> Observed:
        client = self._service.client
        try:
            return self._with_rest(observe(client.connector, client.options, self._queues))
        except BackendError as error:
            LOG.warning("metrics: %s", error.message)
            return Observed(reachable=False)

    def _with_rest(self, seen: Observed) -> Observed:
        """Add up what the queues of the rest have counted since the last look.

        A sum of their totals would fall when a queue leaves the rest, and Prometheus takes a fall for a restart.
        """
        for one in seen.rest:
            before = self._counted.get(one.queue, {})
            if before == one.counters:
                continue
            self._rest.update({name: max(0, total - before.get(name, 0)) for name, total in one.counters.items()})
        stats = (*seen.rest, *(one.stats for one in seen.queues))
        self._counted = {one.queue: one.counters for one in stats} if seen.rest else {}
        return replace(seen, rest_counters=dict(self._rest))


def make_router(service: Service) -> APIRouter:
    """The route; keys that are for some queues see those alone."""
    router = APIRouter(tags=["metrics"])
    looks: dict[tuple[str, ...], Looks] = {}

    @router.get("/metrics", include_in_schema=False)
    async def metrics(request: Request, caller: Reader) -> Response:
        """Jobs by state, rates, how late jobs start, in the text format of Prometheus or OpenMetrics."""
        try:
            from delayq.metrics.exposition import exposition
        except ModuleNotFoundError as error:
            if error.name != "prometheus_client":
                raise
            hint = "pip install 'delayq[metrics]' where `delayq serve` runs."
            raise Refused(plain(501, "/metrics needs prometheus_client.", hint)) from error
        queues = caller.key.queues if caller.key else ()
        if queues not in looks:
            looks[queues] = Looks(service, queues)
        seen = await looks[queues].last()
        # In a thread: of thousands of queues it takes seconds, and others want answers meanwhile.
        page, content_type = await asyncio.to_thread(exposition, seen, __version__, request.headers.get("accept", ""))
        return Response(page, media_type=content_type)

    return router
