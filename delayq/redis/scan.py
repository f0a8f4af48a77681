"""Walking through all ids of a queue, page by page, for the janitor when the data was damaged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from delayq.redis.calls.call import text
from delayq.redis.connect import Connector
from delayq.redis.keys import Keys

# Pages are small because HSCAN brings the payloads along.
PAGE = 64
_HASHES = ("jobs", "entries", "recoveries", "errors", "results", "cancel", "locks")
_SETS = ("scheduled", "failed", "completed")


def scan_ids(connector: Connector, keys: Keys) -> Iterator[str]:
    """Every id that any key of the queue knows, at least once; some twice. Raises `BackendError`."""
    for name in _HASHES:
        yield from _pages(connector, partial(_hash_page, keys.of(name)))
    for name in _SETS:
        yield from _pages(connector, partial(_set_page, keys.of(name)))


def _pages(connector: Connector, read: Callable[[int, Any], tuple[int, list[bytes]]]) -> Iterator[str]:
    cursor = 0
    while True:
        cursor, ids = connector.call(partial(read, cursor), safe=True, reads=True)
        yield from map(text, ids)
        if cursor == 0:
            return


def _hash_page(key: str, cursor: int, client: Any) -> tuple[int, list[bytes]]:
    after, rows = client.hscan(key, cursor=cursor, count=PAGE)
    return int(after), list(rows)


def _set_page(key: str, cursor: int, client: Any) -> tuple[int, list[bytes]]:
    after, rows = client.zscan(key, cursor=cursor, count=PAGE * 8)
    return int(after), [member for member, _ in rows]
