"""The tables of a settings file: routes, forwards and connections, read and checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, TypeAlias, TypeVar

from pydantic import PlainSerializer, PlainValidator

from delayq.core.endpoint import Endpoint
from delayq.core.mask import mask_url
from delayq.core.names import check_queue
from delayq.core.redis_url import parse_endpoint
from delayq.core.routes import Route
from delayq.core.shown import shown
from delayq.settings.values import entry, ours, prefix_text, refused

_Value = TypeVar("_Value")

ON_REDIS: Final = ("redis", "laravel_redis")
"""The drivers whose `url` leads to a Redis."""
DEFAULT: Final = "default"
"""The connection that is meant where nobody names one. It needs no table: it is the Redis of the settings."""
NAMES: Final = ("routes", "forwards", "connections", "push")
"""The settings that are tables: a file holds them, no variable does."""


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """One `[connections.NAME]`: its driver, and what differs from the settings outside. `options` are the driver's.

    `url` is where its Redis is; what a driver of another kind was given as `url` stands in `place`, as it was written.
    """

    driver: str = "redis"
    url: Endpoint | None = None
    place: str = field(default="", repr=False)
    prefix: str | None = None
    queue: str | None = None
    after_commit: bool = False
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        where = self.url or mask_url(self.place)
        return f"{self.driver} {where}" if where else self.driver


def check_connection_name(name: object) -> str:
    """A connection's name; the characters are those of queues."""
    if not isinstance(name, str):
        raise refused(f"{shown(name)} is no name of a connection.")
    return check_queue(name)


def _routes(value: Any) -> dict[str, Route]:
    found = {}
    for pattern, target in _table(value, "patterns and queues").items():
        with entry(pattern):
            if not pattern or pattern != pattern.strip():
                raise refused(f"{shown(pattern)} is no pattern for job names.")
            found[pattern] = _route(pattern, target)
    return found


def _route(pattern: str, target: Any) -> Route:
    if isinstance(target, Route):
        return target
    if not isinstance(target, Mapping):
        return Route(check_queue(target))
    wrong = [word for word in target if word not in ("queue", "connection")]
    if wrong or not target:
        why = f"The route {shown(pattern)} is {shown(dict(target))}; it takes queue, connection, or both."
        raise refused(why, wrong[:1])
    queue, connection = target.get("queue"), target.get("connection")
    return Route(
        None if queue is None else _read("queue", check_queue, queue),
        None if connection is None else _read("connection", check_connection_name, connection),
    )


def _forwards(value: Any) -> dict[str, str]:
    found = {}
    for queue, to in _table(value, "queues and queues").items():
        with entry(queue):
            found[check_queue(queue)] = check_queue(to)
    for queue, to in found.items():
        if to in found:
            why = f"{shown(queue)} goes to {shown(to)}, which is forwarded itself; write where it ends."
            raise refused(why, [queue])
    return found


def _connections(value: Any) -> dict[str, ConnectionSettings]:
    found = {}
    for name, one in _table(value, "connections").items():
        with entry(name):
            found[check_connection_name(name)] = _connection(name, one)
    return found


def _connection(name: str, value: Any) -> ConnectionSettings:
    if isinstance(value, ConnectionSettings):
        return value
    given = dict(_table(value, f"options for the connection {name}"))
    driver, url = _read("driver", check_connection_name, given.pop("driver", "redis")), given.pop("url", None)
    prefix, queue = given.pop("prefix", None), given.pop("queue", None)
    after_commit = given.pop("after_commit", False)
    if not isinstance(after_commit, bool):
        why = f"after_commit of the connection {name} is {shown(after_commit)}; use true or false."
        raise refused(why, ["after_commit"])
    if not isinstance(url, str | Endpoint | None):
        raise refused(f"url of the connection {name} is {shown(url)}; it is a text.", ["url"])
    elsewhere = isinstance(url, str) and driver not in ON_REDIS
    return ConnectionSettings(
        driver=driver,
        url=None if elsewhere else _read("url", parse_endpoint, url) if isinstance(url, str) else url,
        place=str(url) if elsewhere else "",
        prefix=None if prefix is None else _read("prefix", prefix_text, prefix),
        queue=None if queue is None else _read("queue", check_queue, queue),
        after_commit=after_commit,
        options=given,
    )


def _read(word: str, read: Callable[[Any], _Value], value: Any) -> _Value:
    """Return `read(value)`; an error names `word` as its place."""
    with entry(word):
        return read(value)


def _table(value: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise refused(f"{shown(value)} is no table of {what}.")
    return value


def _shown(given: Mapping[str, ConnectionSettings]) -> dict[str, str]:
    """For a dump: no passwords, which stand in an endpoint's fields and in the options of drivers."""
    return {name: str(one) for name, one in given.items()}


Routes: TypeAlias = Annotated[dict[str, Route], PlainValidator(ours(_routes))]
Forwards: TypeAlias = Annotated[dict[str, str], PlainValidator(ours(_forwards))]
Connections: TypeAlias = Annotated[
    dict[str, ConnectionSettings], PlainValidator(ours(_connections)), PlainSerializer(_shown)
]
ConnectionName: TypeAlias = Annotated[str, PlainValidator(ours(check_connection_name))]
