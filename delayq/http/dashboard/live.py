"""Pages that stay true while they are open: one reader for all browsers, which are told what has changed.

    browser ──▶ /events?page=… ──▶ Hub ──▶ one task: each page that somebody watches, once a second ──▶ Redis

However many look at a page, it is read once. A browser that is slow misses states in between, never the last one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from delayq.core.errors import DelayqError

EVERY_S: Final = 1.0
SILENT_S: Final = 5.0
"""After so long without news a stream says that it is still there, and its session is looked at again."""
MOST_WATCHERS: Final = 200
MOST_PAGES: Final = 50


class Watched(NamedTuple):
    """A page that is watched: its name, what it is about, of which queues its viewer may see (() = all), which page of
    the list of queues it is, and the viewer's role where the page has buttons that change."""

    page: str
    queue: str = ""
    job: str = ""
    queues: tuple[str, ...] = ()
    after: str = ""
    find: str = ""
    role: str = ""


Parts = Mapping[str, str]
"""Pieces of a page by the id of the element that holds them."""
Make = Callable[[Watched], Awaitable[Parts]]
Admitted = Callable[[], Awaitable[bool]]
"""Whether the viewer of a stream may still see it."""


async def always() -> bool:
    """Admit a viewer for as long as the stream lasts."""
    return True


class Full(Exception):
    """More watch already than this server can tell."""


class Hub:
    """Tells watchers what has changed on their page."""

    def __init__(self, make: Make, stopping: asyncio.Event, *, every_s: float = EVERY_S) -> None:
        self._make = make
        self._stopping = stopping
        self._every_s = every_s
        self._watchers: dict[Watched, set[asyncio.Queue[str]]] = {}
        self._last: dict[Watched, dict[str, str]] = {}
        self._task: asyncio.Task[None] | None = None

    @property
    def watchers(self) -> int:
        """How many look."""
        return sum(map(len, self._watchers.values()))

    async def watch(self, watched: Watched, admitted: Admitted = always) -> AsyncIterator[str]:
        """Return events as a browser reads them, until it goes, the server stops or `admitted` says no.

        `admitted` is asked before each event. Raises `Full` at once.
        """
        if self.watchers >= MOST_WATCHERS or (watched not in self._watchers and len(self._watchers) >= MOST_PAGES):
            raise Full
        return self._events(watched, admitted)

    async def _events(self, watched: Watched, admitted: Admitted) -> AsyncIterator[str]:
        mail: asyncio.Queue[str] = asyncio.Queue(1)
        self._watchers.setdefault(watched, set()).add(mail)
        if watched in self._last:
            mail.put_nowait(_event({"parts": self._last[watched]}))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        try:
            yield "retry: 2000\n\n"
            while not self._stopping.is_set():
                try:
                    event = await asyncio.wait_for(mail.get(), SILENT_S)
                except TimeoutError:
                    event = ": still here\n\n"
                if not await admitted():
                    return
                yield event
        finally:
            self._leave(watched, mail)

    def _leave(self, watched: Watched, mail: asyncio.Queue[str]) -> None:
        mine = self._watchers.get(watched, set())
        mine.discard(mail)
        if not mine:
            self._watchers.pop(watched, None)
            self._last.pop(watched, None)

    async def _run(self) -> None:
        """Read what is watched, once a second, for as long as somebody watches."""
        while self._watchers and not self._stopping.is_set():
            for watched in list(self._watchers):
                event = await self._news(watched)
                if event:
                    self._tell(watched, event)
            await self._pause()
        for watched in self._watchers:  # the server stops: nobody waits any longer
            self._tell(watched, ": the end\n\n")

    async def _pause(self) -> None:
        try:
            await asyncio.wait_for(self._stopping.wait(), self._every_s)
        except TimeoutError:
            return

    async def _news(self, watched: Watched) -> str:
        """What has changed on that page as an event; '' for nothing."""
        try:
            parts = dict(await self._make(watched))
        except DelayqError as error:
            self._last.pop(watched, None)
            return _event({"down": {"what": error.message}})
        before = self._last.get(watched, {})
        changed = {name: text for name, text in parts.items() if before.get(name) != text}
        if watched in self._watchers:
            self._last[watched] = parts
        return _event({"parts": changed}) if changed else ""

    def _tell(self, watched: Watched, event: str) -> None:
        """To all who watch. Who has not read the last event yet is given the whole page in its place."""
        for mail in self._watchers.get(watched, ()):
            if mail.full():
                mail.get_nowait()
                event = _event({"parts": self._last[watched]}) if watched in self._last else event
            mail.put_nowait(event)


def _event(said: Mapping[str, Any]) -> str:
    return f"data: {msgspec.json.encode(said).decode()}\n\n"
