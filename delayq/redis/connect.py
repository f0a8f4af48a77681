"""The only maker of Redis clients. A `Connector` gives each role its own:

    commands     a small pool; whatever is sent goes through `call`, which resends where that is safe
    reader       one connection that may block in XREADGROUP; its timeout is the block plus a margin
    subscriber   one connection that listens to a channel

For a cluster these hold for each of its nodes, but that a subscriber listens to one of them, and a reader has a
connection for each slot it waits for.

Nothing connects before the first command. A client used in a forked child opens sockets of its own: the
sync pools see the new process id, and `Connector` makes new asyncio clients for a new process or event loop
(an asyncio client made by hand must not cross either).
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import time
from asyncio import AbstractEventLoop
from collections.abc import Awaitable, Callable
from copy import copy
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary, WeakSet

from redis.asyncio.client import PubSub as AsyncPubSub
from redis.client import PubSub

from delayq.core.endpoint import Endpoint, Topology
from delayq.core.redis_url import parse_endpoint
from delayq.redis.aclients import AsyncClient, close_async_client, drop_async_idle, make_async_client
from delayq.redis.clients import Client, close_client, make_client
from delayq.redis.confirm import Confirm, Confirmed, Wait
from delayq.redis.directory import Directory
from delayq.redis.interception import active, connector_for
from delayq.redis.links import aconfirm, confirm
from delayq.redis.resend import SPARE_MS, Budget, Resends, aresend, resend
from delayq.redis.slots import Address
from delayq.redis.translate import translated
from delayq.redis.wire import Wire

T = TypeVar("T")
C = TypeVar("C")


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
    confirm_ms: int = 1_500
    """How long replicas, or the disk, may take to have what was written; within `answer_ms`, which bounds each reply.
    Not shorter, as a disk is synced once a second."""
    silent_ms: int = 500
    """How long a node of a cluster may take to begin an answer to who is hasty. It must be enough for a script, and
    less than jobs on other nodes may come late."""
    reader_margin_ms: int = 5_000
    """Beyond the block of a reader: Redis may start a block's clock again when it was woken for nothing."""


@dataclass(slots=True)
class _Clients(Generic[C]):
    """The clients of one process, or of one event loop in it."""

    commands: C | None = None
    brief: C | None = None
    """As `commands`, for the last try of a call: with shorter waits."""
    subscriber: C | None = None
    readers: WeakSet[C] = field(default_factory=WeakSet)

    def take_all(self) -> list[C]:
        """All of them, to be closed; they are forgotten here."""
        named = [client for client in (self.commands, self.brief, self.subscriber) if client is not None]
        clients = [*named, *self.readers]
        self.commands, self.brief, self.subscriber, self.readers = None, None, None, WeakSet()
        return clients


@dataclass(slots=True)
class _Made:
    """What one process has made."""

    pid: int = field(default_factory=os.getpid)
    sync: _Clients[Client] = field(default_factory=_Clients)
    by_loop: WeakKeyDictionary[AbstractEventLoop, _Clients[AsyncClient]] = field(default_factory=WeakKeyDictionary)


class Connector:
    """Clients of one Redis, by role. `url` as in `delayq.core.endpoint`; raises `ConfigError` for a bad one.

    `hasty`: for who looks after many queues. One node of a cluster that is away is not waited for, but told at once.
    """

    def __init__(
        self, url: str | Endpoint, *, waits: Waits = Waits(), connections: int = 10, hasty: bool = False
    ) -> None:
        self.endpoint = parse_endpoint(url) if isinstance(url, str) else url
        self.waits = waits
        self._connections = connections
        self._silent_s = waits.silent_ms / 1000 if hasty else None
        self._made = _Made()
        self._inherited: list[list[AsyncClient]] = []
        self._directory = Directory(self.endpoint.hosts)
        self._retry(hasty=hasty)

    def _retry(self, *, hasty: bool) -> None:
        waits = self.waits
        budget = Budget(total_ms=waits.budget_ms, try_ms=max(waits.connect_ms, waits.answer_ms))
        where, sentinels = self.endpoint.where, self.endpoint.topology is Topology.SENTINEL
        self._resends = {
            (safe, reads, hurried): Resends(where, safe, reads, budget, hurried, sentinels)
            for safe in (False, True)
            for reads in (False, True)
            for hurried in (False, True)
        }
        self._hasty = hasty
        self._brief_s = budget.last_ms / 1000

    def patient(self) -> Connector:
        """The same connections, for who cannot go on without an answer: a node that is away is waited for."""
        same = copy(self)
        same._retry(hasty=False)
        return same

    def __repr__(self) -> str:
        return f"Connector({str(self.endpoint)!r})"

    def call(self, send: Callable[[Client], T], *, safe: bool, reads: bool = False, hasty: bool = False) -> T:
        """The answer of `send(client)`, which sends one command or one pipeline and may be called again.

        `safe`: it may be sent twice (same id, or a `once` token). `reads`: it changes nothing. `hasty`: one node of a
        cluster that is away is not waited for.
        One answer or one error within `budget_ms`: `BackendUnavailable`, `BackendFull`, `OutcomeUnknown`,
        `ConfigError`, `BackendError`.
        """
        resends = self._resends[safe, reads, hasty or self._hasty]
        return resend(lambda brief: send(self._briefly() if brief else self.commands()), resends, drop=self._drop)

    async def acall(
        self, send: Callable[[AsyncClient], Awaitable[T]], *, safe: bool, reads: bool = False, hasty: bool = False
    ) -> T:
        """As `call`, awaited. Cancelling it closes the connection in use: nobody reads a reply meant for another."""
        resends = self._resends[safe, reads, hasty or self._hasty]
        return await aresend(
            lambda brief: send(self._abriefly() if brief else self.acommands()), resends, drop=self._adrop
        )

    def confirm(self, step: Confirm) -> Confirmed:
        """The answers of calls, given when they are as safe as `step` asks, or say that they are not.

        Raises as `call`, and within the same time. After a lost reply the whole is sent again, where it may be.
        """
        by, where = time.monotonic() + self.waits.budget_ms / 1000, self.endpoint.where

        def send(brief: bool) -> Confirmed:
            client = self._briefly() if brief else self.commands()
            return confirm(client, step, where=where, wait=Wait(self._confirm_ms(brief=brief), by))

        return resend(send, self._resends[step.resend, False, self._hasty], drop=self._drop)

    async def aconfirm(self, step: Confirm) -> Confirmed:
        """As `confirm`, awaited."""
        by, where = time.monotonic() + self.waits.budget_ms / 1000, self.endpoint.where

        async def send(brief: bool) -> Confirmed:
            client = self._abriefly() if brief else self.acommands()
            return await aconfirm(client, step, where=where, wait=Wait(self._confirm_ms(brief=brief), by))

        return await aresend(send, self._resends[step.resend, False, self._hasty], drop=self._adrop)

    def _confirm_ms(self, *, brief: bool) -> int:
        """How long a confirmation may take: less than the reply to it may."""
        return min(self.waits.confirm_ms, int(self._brief_s * 1000) - SPARE_MS) if brief else self.waits.confirm_ms

    def commands(self) -> Client:
        """The client for everything that does not block. Ask each time: it is replaced after a failover or a fork."""
        if active and (other := connector_for(self)) is not self:
            return other.commands()
        made = self._made
        clients = (made if made.pid == os.getpid() else self._mine()).sync
        if clients.commands is None:
            clients.commands = self._new(Role.COMMANDS)
        return clients.commands

    def reader(self, block_ms: int, *, most_reply: int = 0, most_value: int = 0) -> Client:
        """A new client with one connection, for one thread that blocks up to `block_ms` at a time.

        Replies of more than `most_reply` bytes are left unread: `ReplyTooLarge`. Values of more than `most_value` are
        dropped: `Skipped`. 0: of any size.
        """
        if active and (other := connector_for(self)) is not self:
            return other.reader(block_ms, most_reply=most_reply, most_value=most_value)
        with translated(self.endpoint.where, reads=True):
            wire = replace(self._wire(Role.READER, block_ms), most_reply=most_reply, most_value=most_value)
            reader = make_client(self.endpoint, wire, self._directory, self._silent_s)
        self._mine().sync.readers.add(reader)
        return reader

    def subscriber(self) -> PubSub:
        """A new listener with its own connection; read it with `get_message(timeout=seconds)`, and close it."""
        if active and (other := connector_for(self)) is not self:
            return other.subscriber()
        clients = self._mine().sync
        if clients.subscriber is None:
            with translated(self.endpoint.where, reads=True):
                clients.subscriber = self._new(Role.SUBSCRIBER)
        listener: PubSub = clients.subscriber.pubsub(  # type: ignore[no-untyped-call]  # redis-py
            ignore_subscribe_messages=True
        )
        return listener

    def hangs(self, listener: PubSub) -> bool:
        """Whether the node of a cluster that a listener is connected to is known to answer nothing."""
        place = _place_of(listener)
        return place is not None and place in self._directory.hanging

    def silent(self, listener: PubSub) -> None:
        """Its server does not answer: in a cluster the next listener goes to another."""
        if (place := _place_of(listener)) is not None and self.endpoint.topology is Topology.CLUSTER:
            self._directory.lost(place, TimeoutError())

    def acommands(self) -> AsyncClient:
        """As `commands`, for the running event loop."""
        if active and (other := connector_for(self)) is not self:
            return other.acommands()
        clients = self._mine_here()
        if clients.commands is None:
            clients.commands = self._anew(Role.COMMANDS)
        return clients.commands

    def areader(self, block_ms: int) -> AsyncClient:
        """As `reader`, for one task of the running event loop."""
        if active and (other := connector_for(self)) is not self:
            return other.areader(block_ms)
        reader = self._anew(Role.READER, block_ms)
        self._mine_here().readers.add(reader)
        return reader

    async def asubscriber(self) -> AsyncPubSub:
        """As `subscriber`, for the running event loop."""
        if active and (other := connector_for(self)) is not self:
            return await other.asubscriber()
        clients = self._mine_here()
        client = clients.subscriber = clients.subscriber or self._anew(Role.SUBSCRIBER)
        with translated(self.endpoint.where, reads=True):
            await client.initialize()  # a listener does not read the cluster's map by itself
        return client.pubsub(ignore_subscribe_messages=True)

    def _briefly(self) -> Client:
        """As `commands`, for a last try that must end soon."""
        if active and (other := connector_for(self)) is not self:
            return other.commands()
        clients = self._mine().sync
        if clients.brief is None:
            clients.brief = make_client(self.endpoint, self._brief_wire(), self._directory, self._silent_s)
        return clients.brief

    def _abriefly(self) -> AsyncClient:
        """As `acommands`, for a last try that must end soon."""
        if active and (other := connector_for(self)) is not self:
            return other.acommands()
        clients = self._mine_here()
        if clients.brief is None:
            clients.brief = make_async_client(self.endpoint, self._brief_wire(), self._directory)
        return clients.brief

    def _brief_wire(self) -> Wire:
        return replace(self._wire(Role.COMMANDS, None), connect_s=self._brief_s, answer_s=self._brief_s)

    def close(self) -> None:
        """Close every sync connection made here. The connector may be used again."""
        for client in self._mine().sync.take_all():
            close_client(client)

    async def aclose(self) -> None:
        """Close every asyncio connection made here in the running event loop. The connector may be used again."""
        for client in self._mine_here().take_all():
            await close_async_client(client)

    def _new(self, role: Role) -> Client:
        return make_client(self.endpoint, self._wire(role, None), self._directory, self._silent_s)

    def _anew(self, role: Role, block_ms: int | None = None) -> AsyncClient:
        return make_async_client(self.endpoint, self._wire(role, block_ms), self._directory)

    def _wire(self, role: Role, block_ms: int | None) -> Wire:
        if block_ms is not None and block_ms <= 0:
            raise ValueError(f"a reader must block for a finite time, not {block_ms} ms: Redis takes 0 for 'for ever'")
        answer_ms = self.waits.answer_ms if block_ms is None else block_ms + self.waits.reader_margin_ms
        host = re.sub(r"[^A-Za-z0-9._-]", "_", socket.gethostname()) or "unknown"
        return Wire(
            client_name=f"delayq-{role}-{host}-{os.getpid()}",
            connect_s=self.waits.connect_ms / 1000,
            answer_s=answer_ms / 1000,
            connections=1 if role is Role.READER else self._connections,
        )

    def _drop(self) -> None:
        # The old client is let go rather than closed: other threads may be in the middle of a call with it, and the
        # last of them closes its connections by leaving.
        self._directory.doubt()
        clients = self._mine().sync
        clients.commands = clients.brief = None

    async def _adrop(self) -> None:
        self._directory.doubt()
        clients = self._mine_here()
        for client in (clients.commands, clients.brief):
            if client is not None:
                await drop_async_idle(client)

    def _mine(self) -> _Made:
        if self._made.pid != os.getpid():
            # Kept, not closed: closing an inherited asyncio transport would unregister it from the event loop of the
            # parent, whose epoll descriptor we share.
            self._inherited += [clients.take_all() for clients in self._made.by_loop.values()]
            self._made = _Made()
        return self._made

    def _mine_here(self) -> _Clients[AsyncClient]:
        by_loop, loop = self._mine().by_loop, asyncio.get_running_loop()
        if loop not in by_loop:
            by_loop[loop] = _Clients()
        return by_loop[loop]


def _place_of(listener: PubSub) -> Address | None:
    options = listener.connection_pool.connection_kwargs
    return (options["host"], options["port"]) if "port" in options else None
