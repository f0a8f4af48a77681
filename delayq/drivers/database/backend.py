"""The driver `database`, as the settings describe a connection of it.

[connections.jobs]
driver = "database"
database = "postgresql://shop@localhost/shop"   without one: DELAYQ_DATABASE, else a file in the data directory
table = "jobs"                                  and failed_table, batches_table
retry_after = "90s"                             how long Laravel's own workers may hold a job
objects = "leave"                               or "work": hand PHP objects to Python handlers too
lock_wait = "5s"                                how long SQLite waits for another writer
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from delayq.core.errors import ConfigError, DelayqError
from delayq.core.options import Options
from delayq.core.when import duration_ms
from delayq.drivers.capabilities import Capabilities, Keeper
from delayq.drivers.database.broker import DatabaseBroker
from delayq.drivers.database.claiming import Lease
from delayq.drivers.database.engine import Database
from delayq.drivers.database.tables import BATCHES, FAILED, JOBS, Tables, tables
from delayq.drivers.serving.backend import Backend
from delayq.settings.tables import ConnectionSettings

CAPABILITIES: Final = Capabilities(
    delay=True,
    ids=True,
    replace=True,
    cancel=True,
    reschedule=True,
    run_now=True,
    inspect=True,
    counts=True,
    clear=True,
    chains=True,
    transactional=True,
    own_failed=True,
    keeper=Keeper.STEWARD,
    prefetch=500,
)

WORDS: Final = {
    "database": "",
    "table": JOBS,
    "failed_table": FAILED,
    "batches_table": BATCHES,
    "retry_after": "90s",
    "objects": "leave",
    "lock_wait": "5s",
}
"""The options of a connection, and what counts without them."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a connection keeps its jobs. `answer_ms`: wait no longer than that for the database."""

    url: str
    tables: Tables
    lease: Lease
    lock_ms: int
    objects: bool

    def open(self, *, answer_ms: int | None = None) -> DatabaseBroker:
        """A broker of this process."""
        return DatabaseBroker(self.database(answer_ms), self.tables, self.lease, objects=self.objects)

    def database(self, answer_ms: int | None = None) -> Database:
        """An engine of its own."""
        lock_ms = self.lock_ms if answer_ms is None else min(answer_ms, self.lock_ms)
        return Database(self.url, lock_ms=lock_ms, answer_ms=answer_ms)


def backend(name: str, given: ConnectionSettings, options: Options) -> Backend:
    """The connection that stands in the settings. Raises `ConfigError`; opens nothing."""
    place = place_of(name, given.options, options)
    return Backend(CAPABILITIES, place.open, Database(place.url).where)


def place_of(name: str, given: Mapping[str, Any], options: Options) -> Place:
    """Where that connection keeps its jobs. Raises `ConfigError` for an option that cannot be used."""
    words = {**WORDS, **given}
    for option, value in words.items():
        if option not in WORDS or not isinstance(value, str):
            raise ConfigError(
                f"The connection {name!r} has {option} = {value!r}, and its driver is database.",
                hint=f"Known are {', '.join(WORDS)}, queue and after_commit; each is a text.",
            )
    if words["objects"] not in ("leave", "work"):
        raise ConfigError(f"objects of the connection {name!r} is {words['objects']!r}; use leave or work.")
    if not words["database"]:
        raise ConfigError(
            f"The connection {name!r} names no database.",
            hint=f'Add to [connections.{name}]: database = "sqlite:////var/lib/shop/jobs.db"',
        )
    known = tables(words["table"], words["failed_table"], words["batches_table"])
    lease = Lease(options.lease_ms, -(-_ms(name, words, "retry_after") // 1000))
    return Place(words["database"], known, lease, _ms(name, words, "lock_wait"), words["objects"] == "work")


def _ms(name: str, words: Mapping[str, str], option: str) -> int:
    try:
        return duration_ms(words[option])
    except DelayqError as error:
        raise ConfigError(f"{option} of the connection {name!r}: {error}") from error
