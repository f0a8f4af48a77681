"""What every route works with: one value, made once for a server."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Final

from fastapi import Depends, Request

from delayq.core.audit import Deed
from delayq.core.errors import BackendFull
from delayq.core.views import QueueStats, Silent
from delayq.http import outcomes
from delayq.http.binding import Binding
from delayq.http.kept import Kept
from delayq.http.keys import KeyFile
from delayq.http.paces import Paces
from delayq.http.pull.desk import Desk
from delayq.http.seals import Seals
from delayq.redis.aio import AsyncClient
from delayq.redis.whole import stats_and_silent
from delayq.settings import Settings

if TYPE_CHECKING:
    from delayq.http.access import Caller

LOG: Final = logging.getLogger("delayq.http")


@dataclass(frozen=True, slots=True)
class Service:
    """The client of the Redis that is served, the settings, the API keys, and where the server listens.

    `desk` hands out reservations. `stopping` is set when the server is about to end: who keeps a request waiting
    answers then. `held`: how many jobs all queues hold, each with those of silent workers.
    """

    client: AsyncClient
    settings: Settings
    keys: KeyFile
    desk: Desk
    binding: Binding = field(default_factory=Binding)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    paces: Paces = field(default_factory=Paces)
    seals: Seals = field(init=False)
    held: Kept[list[tuple[QueueStats, Silent]]] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "seals", Seals(self.client))
        object.__setattr__(self, "held", Kept(lambda: self.client.run(stats_and_silent(self.client.verbs))))

    async def record(self, caller: Caller, what: str, target: str, *, detail: str = "", reason: str = "") -> None:
        """Write down what a caller is about to do. A server that is full takes no record; what frees it goes on.

        Raises `InvalidInput` for a reason that says nothing.
        """
        try:
            deed = Deed(what, target, reason, detail, caller.who, caller.door)
            outcomes.noted(await self.client.audit_log.record(deed))
        except BackendFull:
            LOG.warning("Redis is full: not in the audit log: %s %s by %s", what, target, caller.who)


async def service_of(request: Request) -> Service:
    """The service of the application that got this request."""
    service: Service = request.app.state.service
    return service


Served = Annotated[Service, Depends(service_of)]
