"""What servers say of themselves, for people: memory, saving, clients, replication, slow commands. Changes nothing.

Every part is asked for by itself, so a user of Redis that may not send one command still gets the others; what it may
not send is named. Slow commands are told without their arguments: these hold payloads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, Final, TypeVar

from redis.exceptions import NoPermissionError

from delayq.redis.calls import activity
from delayq.redis.calls.call import text
from delayq.redis.connect import Connector
from delayq.redis.direct import Direct, OneServer
from delayq.redis.finding import ask_every, every_shard
from delayq.redis.scripts import load, names
from delayq.redis.server_state import LeaveOut, on_each
from delayq.redis.verbs import Flow, Verbs

T = TypeVar("T")
PARTS: Final = ("server", "memory", "persistence", "clients", "replication", "stats")
SLOW: Final = 20
"""Slow commands that are told of each server."""
NAMED: Final = 20
"""Names of clients that are told of each server."""
MAX_KEY: Final = 100


@dataclass(frozen=True, slots=True)
class SlowCommand:
    """A command that took long: when it began, for how long, its name, the key it is about, and how many other
    arguments it had. `key` is '' for one that is not below delayq's prefix."""

    at_ms: int
    took_us: int
    command: str
    key: str
    others: int


@dataclass(frozen=True, slots=True)
class ServerReport:
    """One server, or one primary of a cluster (`node` is '' for the only one).

    `info` holds fields of INFO; `cluster` those of CLUSTER INFO. `clients` has the names of its clients and how many
    have each. `forbidden` names the commands that this user of Redis may not send.
    """

    node: str
    info: Mapping[str, Any] = field(default_factory=dict)
    cluster: Mapping[str, str] = field(default_factory=dict)
    clients: tuple[tuple[str, int], ...] = ()
    slow: tuple[SlowCommand, ...] = ()
    forbidden: tuple[str, ...] = ()


def server_reports(connector: Connector, prefix: str, leave_out: LeaveOut) -> list[ServerReport]:
    """The report of the server, or of each primary of a cluster; nodes that do not answer go to `leave_out`.

    Raises `BackendError` or `ConfigError` when none can be asked at all.
    """

    def ask(client: Direct) -> list[ServerReport]:
        return list(on_each(client, lambda node: _report(client.servers()[node], node, prefix), leave_out).values())

    return connector.call(ask, safe=True, reads=True)


def weight(verbs: Verbs, queues: Sequence[str]) -> Flow[int]:
    """About how many bytes the keys of these queues take."""
    scopes = []
    for queue in queues:
        scopes += list((yield from every_shard(verbs, queue)))
    return sum((yield from ask_every(scopes, activity.weigh)))


def _report(server: OneServer, node: str, prefix: str) -> ServerReport:
    forbidden: dict[str, None] = {}

    def allowed(command: str, ask: Callable[[], T]) -> T | None:
        try:
            return ask()
        except NoPermissionError:
            forbidden[command] = None
            return None

    info: dict[str, Any] = {}
    for part in PARTS:
        info |= allowed("INFO", partial(server.info, part)) or {}
    slow = allowed("SLOWLOG", lambda: _slow(server.ask(("SLOWLOG", "GET", SLOW)), prefix))
    clients = allowed("CLIENT LIST", lambda: _names(server.client_list()))
    cluster = allowed("CLUSTER INFO", lambda: _fields(server.ask(("CLUSTER", "INFO")))) if node else None
    return ServerReport(node, info, cluster or {}, clients or (), slow or (), tuple(forbidden))


def _names(clients: Sequence[Mapping[str, Any]]) -> tuple[tuple[str, int], ...]:
    """The most frequent names; those of delayq differ by process, which is left out."""
    return tuple(Counter(str(one.get("name") or "").split(":")[0] for one in clients).most_common(NAMED))


def _fields(reply: object) -> dict[str, str]:
    lines = text(reply).splitlines() if isinstance(reply, bytes) else []
    return {name: value for name, _, value in (line.partition(":") for line in lines) if value}


def _slow(rows: Sequence[Sequence[Any]], prefix: str) -> tuple[SlowCommand, ...]:
    return tuple(_one(int(row[1]), int(row[2]), row[3], prefix) for row in rows)


def _one(at_s: int, took_us: int, words: Sequence[bytes], prefix: str) -> SlowCommand:
    command, *arguments = [text(word) for word in words]
    name = command.upper()
    if name in ("EVALSHA", "EVALSHA_RO") and arguments:
        name = f"{name} {_scripts().get(arguments[0], arguments[0][:8])}"
    key = next((word for word in arguments if word.startswith(f"{prefix}:") and len(word) <= MAX_KEY), "")
    return SlowCommand(at_s * 1_000, took_us, name[:MAX_KEY], key, max(0, len(arguments) - bool(key)))


@cache
def _scripts() -> Mapping[str, str]:
    """delayq's scripts by their hash."""
    return {load(name).sha: f"{name}.lua" for name in names()}
