"""/metrics: the state of Redis for Prometheus. One look serves everybody who asks within five seconds."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Final

from fastapi import APIRouter, Request, Response

from delayq import __version__
from delayq.core.errors import BackendError
from delayq.core.observed import Observed
from delayq.http.access import Caller, Reader
from delayq.http.problems import Refused, plain
from delayq.http.service import LOG, Service
from delayq.redis.observing import observe

CACHED_S: Final = 5.0


class Looks:
    """The last look, and a new one when it is too old."""

    def __init__(self, service: Service) -> None:
        self._service = service
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
            return observe(client.connector, client.options)
        except BackendError as error:
            LOG.warning("metrics: %s", error.message)
            return Observed(reachable=False)


def make_router(service: Service) -> APIRouter:
    """The route; keys that are for some queues see those alone."""
    router, looks = APIRouter(tags=["metrics"]), Looks(service)

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
        seen = _for(caller, await looks.last())
        # In a thread: of thousands of queues it takes seconds, and others want answers meanwhile.
        page, content_type = await asyncio.to_thread(exposition, seen, __version__, request.headers.get("accept", ""))
        return Response(page, media_type=content_type)

    return router


def _for(caller: Caller, seen: Observed) -> Observed:
    return replace(
        seen,
        queues=tuple(one for one in seen.queues if caller.sees(one.stats.queue)),
        workers={queue: number for queue, number in seen.workers.items() if caller.sees(queue)},
        unseen=tuple(queue for queue in seen.unseen if caller.sees(queue)),
    )
