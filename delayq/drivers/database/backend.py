"""The driver `database`, as the settings describe a connection of it.

[connections.jobs]
driver = "database"
url = "postgresql://shop@localhost/shop"    without one: DELAYQ_DATABASE, else a file in the data directory
table = "jobs"                              and failed_table, batches_table
retry_after = "90s"                         how long Laravel's own workers may hold a job
laravel = "database"                        what Laravel's config/queue.php calls this connection
php_objects = false                         true: hand PHP objects to Python handlers too
lock_wait = "5s"                            how long SQLite waits for another writer
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from delayq.core.errors import ConfigError
from delayq.core.options import Options
from delayq.drivers.capabilities import Capabilities, Keeper
from delayq.drivers.database.broker import DatabaseBroker
from delayq.drivers.database.claiming import Lease
from delayq.drivers.database.connection import DatabaseConnection
from delayq.drivers.database.engine import Database
from delayq.drivers.database.failed import DatabaseFailedStore
from delayq.drivers.database.faults import Owner
from delayq.drivers.database.schema import migrate
from delayq.drivers.database.tables import BATCHES, FAILED, JOBS, Tables, tables
from delayq.drivers.serving.backend import Backend
from delayq.drivers.serving.given import Given
from delayq.settings.tables import ConnectionSettings

CAPABILITIES: Final = Capabilities(
    delay=True,
    ids=True,
    replace=True,
    cancel=True,
    reschedule=True,
    run_now=True,
    unique=True,
    inspect=True,
    wait=True,
    counts=True,
    clear=True,
    chains=True,
    batches=True,
    transactional=True,
    own_failed=True,
    recoveries=True,
    keeper=Keeper.STEWARD,
    prefetch=500,
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a connection keeps its jobs. `own_file`: an SQLite file of delayq's own, made when it is first used.

    `name` is the connection's, `laravel` what Laravel calls it.
    """

    url: str
    tables: Tables
    lease: Lease
    lock_ms: int
    php_objects: bool
    own_file: Path | None
    name: str = ""
    laravel: str = ""

    def open(self, *, answer_ms: int | None = None) -> DatabaseBroker:
        """A broker of this process. `answer_ms`: wait no longer than that for the database."""
        database = self.database(answer_ms)
        return DatabaseBroker(database, self.tables, self.lease, objects=self.php_objects, laravel=self.laravel)

    def failed(self) -> DatabaseFailedStore:
        """The store of failed jobs, which is a table beside theirs."""
        return DatabaseFailedStore(self.database(), self.tables.failed, connection=self.name, laravel=self.laravel)

    def database(self, answer_ms: int | None = None) -> Database:
        """An engine of its own."""
        lock_ms = self.lock_ms if answer_ms is None else min(answer_ms, self.lock_ms)
        database = Database(self.url, lock_ms=lock_ms, answer_ms=answer_ms, owner=Owner(self.name))
        if self.own_file is not None and not self.own_file.exists():
            self.own_file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            migrate(database, self.tables)
        return database


def backend(name: str, given: ConnectionSettings, options: Options, own_file: Path | None = None) -> Backend:
    """The connection that stands in the settings. Raises `ConfigError`; opens nothing."""
    place = place_of(name, given, options, own_file)
    return Backend(CAPABILITIES, place.open, Database(place.url).where, place.failed)


def connect(name: str, given: ConnectionSettings, options: Options, own_file: Path | None = None) -> DatabaseConnection:
    """The connection itself, which may write in a transaction of the application's."""
    return DatabaseConnection(name, backend(name, given, options, own_file), options)


def place_of(name: str, given: ConnectionSettings, options: Options, own_file: Path | None = None) -> Place:
    """Where that connection keeps its jobs. Raises `ConfigError` for an option that cannot be used.

    `own_file` is where it keeps them without a url.
    """
    words = Given(name, given)
    known = tables(words.text("table", JOBS), words.text("failed_table", FAILED), words.text("batches_table", BATCHES))
    lease = Lease(options.lease_ms, -(-words.duration_ms("retry_after", "90s", least="1s") // 1000))
    lock_ms, php_objects = words.duration_ms("lock_wait", "5s"), words.flag("php_objects")
    laravel = words.text("laravel", "database")
    if "failed" in given.options:
        raise ConfigError(
            f"The connection {name!r} keeps its failed jobs in a table beside its jobs, in the step that ends them, "
            "so failed = … is for others.",
            hint="Leave it out; failed_table names that table.",
        )
    words.no_more()
    if given.place:
        return Place(given.place, known, lease, lock_ms, php_objects, None, name, laravel)
    if own_file is None:
        raise ConfigError(
            f"The connection {name!r} names no database.",
            hint=f'Add to [connections.{name}]: url = "postgresql://shop@localhost/shop"',
        )
    return Place(f"sqlite:///{own_file}", known, lease, lock_ms, php_objects, own_file, name, laravel)
