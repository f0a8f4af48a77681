"""Walking through a queue, page by page, for the janitor: all ids when the data was damaged; windows that are over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from delayq.redis.calls.call import text
from delayq.redis.connect import Connector
from delayq.redis.keys import Keys

# Pages are small because HSCAN brings the payloads along.
PAGE = 64
WINDOWS = 400
_HASHES = ("jobs", "entries", "recoveries", "errors", "results", "cancel", "locks")
_SETS = ("scheduled", "failed", "completed")


def scan_ids(connector: Connector, keys: Keys) -> Iterator[str]:
    """Every id that any key of the queue knows, at least once; some twice. Raises `BackendError`."""
    for name in _HASHES:
        yield from _pages(connector, partial(_hash_page, keys.of(name)))
    for name in _SETS:
        yield from _pages(connector, partial(_set_page, keys.of(name)))


def hash_rows(connector: Connector, key: str) -> Iterator[tuple[bytes, bytes]]:
    """Every row of a hash that is there all the while, at least once. Raises `BackendError`."""
    cursor = 0
    while True:
        cursor, rows = connector.call(partial(_hash_rows, key, cursor), safe=True, reads=True)
        yield from rows.items()
        if cursor == 0:
            return


def _hash_rows(key: str, cursor: int, client: Any) -> tuple[int, dict[bytes, bytes]]:
    after, rows = client.hscan(key, cursor=cursor, count=PAGE)
    return int(after), rows


def windows_over(connector: Connector, keys: Keys, cursor: int, now_ms: int) -> tuple[int, list[str]]:
    """A page of the unique keys: where the next begins (0 = through), and the windows that are over."""
    after, rows = connector.call(partial(_rows, keys.of("unique"), cursor), safe=True, reads=True)
    ends = ((text(name), text(value).partition(" ")[2]) for name, value in rows.items())
    return after, [name for name, end in ends if end.isdigit() and int(end) <= now_ms]


def _rows(key: str, cursor: int, client: Any) -> tuple[int, dict[bytes, bytes]]:
    after, rows = client.hscan(key, cursor=cursor, count=WINDOWS)
    return int(after), rows


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
