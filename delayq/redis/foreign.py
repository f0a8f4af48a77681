"""Keys of ours that hold something else. Redis' own WRONGTYPE does not say which key it met."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from redis.exceptions import NoPermissionError

from delayq.core.errors import ConfigError
from delayq.core.facts import ForeignKey
from delayq.redis.connect import Connector
from delayq.redis.keys import Globals

ABSENT: Final = "none"


def foreign_keys(connector: Connector, types: Mapping[str, str]) -> tuple[ForeignKey, ...] | None:
    """Those of `types` (key → type) that are there and of another type; None when this user may not ask.

    One round trip. Raises as `Connector.call`.
    """
    try:
        found = connector.call(partial(_types, tuple(types)), safe=True, reads=True)
    except ConfigError as error:
        if not isinstance(error.__cause__, NoPermissionError):
            raise
        return None
    pairs = zip(types.items(), found, strict=True)
    return tuple(ForeignKey(key, kind, expected) for (key, expected), kind in pairs if kind not in (expected, ABSENT))


def foreign_of_all(connector: Connector, prefix: str) -> tuple[ForeignKey, ...] | None:
    """As `foreign_keys`: the keys of no queue, those of the announced workers among them."""
    names = Globals(prefix)
    shared = foreign_keys(connector, names.types())
    if shared is None or any(one.key == names.workers for one in shared):
        return shared
    announced = connector.call(partial(_members, names.workers), safe=True, reads=True)
    own = {names.worker(name): "string" for name in announced}
    return (*shared, *(foreign_keys(connector, own) or ())) if own else shared


def _members(zset: str, client: Any) -> list[str]:
    return [name.decode("utf-8", "backslashreplace") for name in client.zrange(zset, 0, -1)]


def _types(keys: tuple[str, ...], client: Any) -> list[str]:
    with client.pipeline(transaction=False) as pipe:
        for key in keys:
            pipe.type(key)
        return [kind.decode() for kind in pipe.execute()]
