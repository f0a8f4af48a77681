"""The only maker of Redis clients. A `Connector` gives each role its own:

    commands     a small pool; whatever is sent goes through `call`, which resends where that is safe
    reader       one connection that may block in XREADGROUP; its timeout is the block plus a margin
    subscriber   one connection that listens to a channel

Nothing connects before the first command. A client used in a forked child opens sockets of its own: the
sync pools see the new process id, and `Connector` makes new asyncio clients for a new process or event loop
(an asyncio client made by hand must not cross either).
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
from asyncio import AbstractEventLoop
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar
from weakref import WeakKeyDictionary

from redis.asyncio.client import PubSub as AsyncPubSub
from redis.client import PubSub

from delayq.redis.aclients import AsyncClient, close_async_client, drop_async_idle, make_async_client
from delayq.redis.clients import Client, close_client, make_client
from delayq.redis.endpoint import Endpoint, parse_endpoint
from delayq.redis.resend import Budget, Resends, aresend, resend
from delayq.redis.wire import Wire

T = TypeVar("T")


class Role(StrEnum):
    """What a connection is for; part of its name in CLIENT LIST."""

    COMMANDS = "commands"
    READER = "reader"
    SUBSCRIBER = "subscriber"


@dataclass(frozen=True, slots=True)
class Waits:
    """How long to wait for Redis.

    `answer_ms` is 2 s, not redis-py's 5 s: when a server hangs or a connection is silently dead, there must be time
    left in the 5 s of `budget_ms` for a second try over a new connection.
    """

    connect_ms: int = 2_000
    answer_ms: int = 2_000
    budget_ms: int = 5_000
    reader_margin_ms: int = 5_000
    """Beyond the block of a reader: Redis may start a block's clock again when it was woken for nothing."""


@dataclass(slots=True)
class _Made:
    """What one process has made."""

    pid: int = field(default_factory=os.getpid)
    commands: Client | None = None
    sync: list[Client] = field(default_factory=list)
    async_commands: WeakKeyDictionary[AbstractEventLoop, AsyncClient] = field(default_factory=WeakKeyDictionary)
    asynchronous: WeakKeyDictionary[AbstractEventLoop, list[AsyncClient]] = field(default_factory=WeakKeyDictionary)


class Connector:
    """Clients of one Redis, by role. `url` as in `delayq.redis.endpoint`; raises `ConfigError` for a bad one."""

    def __init__(self, url: str | Endpoint, *, waits: Waits = Waits(), connections: int = 10) -> None:
        self.endpoint = parse_endpoint(url) if isinstance(url, str) else url
        self.waits = waits
        self._connections = connections
        budget = Budget(total_ms=waits.budget_ms, try_ms=max(waits.connect_ms, waits.answer_ms))
        self._resends = {
            (safe, reads): Resends(self.endpoint.where, safe, reads, budget)
            for safe in (False, True)
            for reads in (False, True)
        }
        self._made = _Made()
        self._inherited: list[_Made] = []

    def __repr__(self) -> str:
        return f"Connector({str(self.endpoint)!r})"

    def call(self, send: Callable[[Client], T], *, safe: bool, reads: bool = False) -> T:
        """The answer of `send(client)`, which sends one command or one pipeline and may be called again.

        `safe`: it may be sent twice (same id, or a `once` token). `reads`: it changes nothing.
        One answer or one error within `budget_ms`: `BackendUnavailable`, `BackendFull`, `OutcomeUnknown`,
        `ConfigError`, `BackendError`.
        """
        return resend(lambda: send(self.commands()), self._resends[safe, reads], drop=self._drop)

    async def acall(self, send: Callable[[AsyncClient], Awaitable[T]], *, safe: bool, reads: bool = False) -> T:
        """As `call`, awaited. Cancelling it closes the connection in use: nobody reads a reply meant for another."""
        return await aresend(lambda: send(self.acommands()), self._resends[safe, reads], drop=self._adrop)

    def commands(self) -> Client:
        """The client for everything that does not block. Ask each time: it is replaced after a failover or a fork."""
        made = self._mine()
        if made.commands is None:
            made.commands = self._new(Role.COMMANDS)
        return made.commands

    def reader(self, block_ms: int) -> Client:
        """A new client with one connection, for one thread that blocks up to `block_ms` at a time."""
        return self._new(Role.READER, block_ms)

    def subscriber(self) -> PubSub:
        """A new listener with its own connection; read it with `get_message(timeout=seconds)`."""
        listener: PubSub = self._new(Role.SUBSCRIBER).pubsub(  # type: ignore[no-untyped-call]  # redis-py
            ignore_subscribe_messages=True
        )
        return listener

    def acommands(self) -> AsyncClient:
        """As `commands`, for the running event loop."""
        made, loop = self._mine(), asyncio.get_running_loop()
        client = made.async_commands.get(loop)
        if client is None:
            client = made.async_commands[loop] = self._anew(Role.COMMANDS)
        return client

    def areader(self, block_ms: int) -> AsyncClient:
        """As `reader`, for one task of the running event loop."""
        return self._anew(Role.READER, block_ms)

    def asubscriber(self) -> AsyncPubSub:
        """As `subscriber`, for the running event loop."""
        return self._anew(Role.SUBSCRIBER).pubsub(ignore_subscribe_messages=True)

    def close(self) -> None:
        """Close every sync connection made here. The connector may be used again."""
        made = self._mine()
        made.commands, clients, made.sync = None, made.sync, []
        for client in clients:
            close_client(client)

    async def aclose(self) -> None:
        """Close every asyncio connection made here in the running event loop. The connector may be used again."""
        made, loop = self._mine(), asyncio.get_running_loop()
        made.async_commands.pop(loop, None)
        for client in made.asynchronous.pop(loop, []):
            await close_async_client(client)

    def _new(self, role: Role, block_ms: int | None = None) -> Client:
        client = make_client(self.endpoint, self._wire(role, block_ms))
        self._mine().sync.append(client)
        return client

    def _anew(self, role: Role, block_ms: int | None = None) -> AsyncClient:
        client = make_async_client(self.endpoint, self._wire(role, block_ms))
        self._mine().asynchronous.setdefault(asyncio.get_running_loop(), []).append(client)
        return client

    def _wire(self, role: Role, block_ms: int | None) -> Wire:
        if block_ms is not None and block_ms <= 0:
            raise ValueError(f"a reader must block for a finite time, not {block_ms} ms: Redis takes 0 for 'for ever'")
        answer_ms = self.waits.answer_ms if block_ms is None else block_ms + self.waits.reader_margin_ms
        host = re.sub(r"[^A-Za-z0-9._-]", "_", socket.gethostname()) or "unknown"
        return Wire(
            client_name=f"delayq-{role}-{host}-{os.getpid()}",
            connect_s=self.waits.connect_ms / 1000,
            answer_s=answer_ms / 1000,
            connections=self._connections if role is Role.COMMANDS else 1,
        )

    def _drop(self) -> None:
        # The old client is let go rather than closed: other threads may be in the middle of a call with it, and the
        # last of them closes its connections by leaving.
        made = self._mine()
        client, made.commands = made.commands, None
        if client in made.sync:
            made.sync.remove(client)

    async def _adrop(self) -> None:
        if client := self._mine().async_commands.get(asyncio.get_running_loop()):
            await drop_async_idle(client)

    def _mine(self) -> _Made:
        if self._made.pid != os.getpid():
            # Kept, not closed: closing an inherited asyncio transport would unregister it from the event loop of the
            # parent, whose epoll descriptor we share.
            self._inherited.append(self._made)
            self._made = _Made()
        return self._made
