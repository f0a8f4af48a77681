"""Does the server take writes, how full is it, does it save? Asked of each primary, in three short round trips.

The write that is tried changes nothing: `SET key value XX` on a key that does not exist. The server checks its disk,
its memory and its replicas before it looks for the key, so it refuses this command whenever it would refuse a job.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias, TypeVar

from redis.exceptions import NoPermissionError, ResponseError

from delayq.core.facts import Refusal, ServerState
from delayq.redis.connect import Connector
from delayq.redis.direct import Direct
from delayq.redis.faults import REDIS_ERRORS, fault_of
from delayq.redis.keys import Globals

T = TypeVar("T")
SAVES: Final = {
    "rdb_last_bgsave_status": "its snapshot (RDB)",
    "aof_last_write_status": "its append-only file",
    "aof_last_bgrewrite_status": "the rewrite of its append-only file",
}

_REFUSALS: Final = frozenset(Refusal)


LeaveOut: TypeAlias = Callable[[str, Exception], None]
"""Is told of a node of a cluster that does not answer, and why."""


def server_states(connector: Connector, prefix: str, leave_out: LeaveOut | None = None) -> list[ServerState]:
    """The state of the server, or of each primary of a cluster. A refusal is an answer here and is not tried again.

    A node of a cluster that does not answer is left out, if `leave_out` is given. Raises `BackendError` or
    `ConfigError` when a server does not answer at all.
    """

    def ask(client: Direct) -> list[ServerState]:
        return list(on_each(client, lambda node: _state(client, node, prefix), leave_out).values())

    return connector.call(ask, safe=True, reads=True)


def on_each(client: Direct, ask: Callable[[str], T], leave_out: LeaveOut | None) -> dict[str, T]:
    """The answer of each server by its name; see `server_states` for `leave_out`."""
    answers: dict[str, T] = {}
    nodes = list(client.servers())
    for node in nodes:
        try:
            answers[node] = ask(node)
        except REDIS_ERRORS as error:
            if leave_out is None or len(nodes) == 1 or isinstance(error, ResponseError):
                raise
            leave_out(node, error)
    return answers


def _state(client: Direct, node: str, prefix: str) -> ServerState:
    server, forbidden = client.servers()[node], list[str]()
    info: Mapping[str, Any] = {}
    for part in ("memory", "persistence"):
        try:
            info = {**info, **server.info(part)}
        except NoPermissionError:
            forbidden.append("INFO")
    refuses: Refusal | None = None
    writable: bool | None = True
    try:
        server.ask(("SET", client.key_on(node, Globals(prefix).probe), "", "XX"))
    except REDIS_ERRORS as error:
        match fault_of(error).code:
            case "NOPERM":
                forbidden.append("SET")
                writable = None
            case code if code in _REFUSALS:
                refuses, writable = Refusal(code), False
            case _:
                raise
    return ServerState(
        node=node,
        refuses=refuses,
        writable=writable,
        memory_bytes=_number(info.get("used_memory")),
        memory_limit_bytes=_number(info.get("maxmemory")),
        failing=tuple(said for name, said in SAVES.items() if str(info.get(name, "ok")) != "ok"),
        forbidden=tuple(dict.fromkeys(forbidden)),
    )


def _number(value: object) -> int | None:
    return value if isinstance(value, int) else None
