"""Orders in one SQLite file. Every change is conditional, so a job that comes twice changes nothing the second time."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

_SCHEMA = "CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, state TEXT NOT NULL)"


class Shop:
    """The orders in `path`; without one, in the file that ORDERS_DB names, or orders.sqlite3 here."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path or Path(os.environ.get("ORDERS_DB", "orders.sqlite3"))
        with self._database() as database:
            database.execute(_SCHEMA)

    def place(self, order_id: int) -> None:
        """A new order waits for its money; one that is there already stays as it is."""
        with self._database() as database:
            database.execute("INSERT OR IGNORE INTO orders VALUES (?, 'open')", (order_id,))

    def pay(self, order_id: int) -> bool:
        """True when the order is paid now, or was before; False when it was closed, or never placed."""
        return self._turn(order_id, into="paid") or self.state(order_id) == "paid"

    def close(self, order_id: int) -> bool:
        """True when this call closed the order; False when it was paid or closed before."""
        return self._turn(order_id, into="closed")

    def state(self, order_id: int) -> str:
        """open, paid or closed; '' for an order that was never placed."""
        return dict(self.orders()).get(order_id, "")

    def orders(self) -> list[tuple[int, str]]:
        """All orders and their states, in order of their numbers."""
        with self._database() as database:
            return list(database.execute("SELECT id, state FROM orders ORDER BY id"))

    def _turn(self, order_id: int, *, into: str) -> bool:
        with self._database() as database:
            sql = "UPDATE orders SET state = ? WHERE id = ? AND state = 'open'"
            return database.execute(sql, (into, order_id)).rowcount == 1

    @contextmanager
    def _database(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self._path, timeout=10.0)) as database, database:
            yield database
