"""How the deeds of a request ended: written into the audit log before its answer is sent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from delayq.core.audit import Noted

_NOTED: Final[ContextVar[list[Noted] | None]] = ContextVar("delayq_noted", default=None)


def noted(entry: str) -> None:
    """Remember a deed that was written down for the request that is being answered."""
    if (deeds := _NOTED.get()) is not None:
        deeds.append(Noted(entry))


def refused(why: str) -> None:
    """Remember that what was written down last was not done, and why."""
    if deeds := _NOTED.get():
        deeds[-1].refusal = why


class Outcomes:
    """An ASGI application in front of another: the status of its answer says how the deeds of a request ended.

    2xx and 3xx: done, unless `refused` was called. 4xx: refused. 5xx, or no answer at all: unknown.
    """

    def __init__(self, app: ASGIApp, end: Callable[[str, str], Awaitable[None]]) -> None:
        """`end` takes the id of an entry, and why its deed was refused ('' = it was done)."""
        self._app = app
        self._end = end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand the request on."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        deeds: list[Noted] = []
        mark = _NOTED.set(deeds)

        async def told(message: Message) -> None:
            if message["type"] == "http.response.start":
                await self._tell(deeds, message["status"])
            await send(message)

        try:
            await self._app(scope, receive, told)
        finally:
            _NOTED.reset(mark)

    async def _tell(self, deeds: list[Noted], status: int) -> None:
        for deed in deeds if status < 500 else ():
            await self._end(
                deed.id, deed.refusal or (f"It was answered with status {status}." if status >= 400 else "")
            )
        deeds.clear()
