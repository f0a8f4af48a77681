"""Waiting jobs that go from one connection to another: connections to try it on, and looking at both ends."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

from delayq.core import envelope as envelopes
from delayq.core.names import new_id
from delayq.core.spec import JobSpec
from delayq.core.states import OnConflict, State
from delayq.drivers.broker import Waiting
from delayq.drivers.connection import Connection
from delayq.drivers.database.engine import Database
from delayq.drivers.database.schema import migrate as create_tables
from delayq.drivers.database.tables import tables
from delayq.drivers.migrating.migration import Migrated, Migration
from delayq.drivers.migrating.opening import source_of, target_of
from delayq.drivers.redis_connection import RedisConnection
from delayq.drivers.serving.connection import BrokerConnection
from delayq.jobs.current import make_manager
from delayq.manager import Manager
from delayq.settings import Settings
from tests.support import shelf

QUEUE = "orders"
FOREIGN = ("other:*", "shop_*")
"""Keys that these connections leave beside delayq's own."""


def settings_of(redis_url: str, folder: Path) -> Settings:
    """`redis`; `other`, which has a prefix of its own; `sqlite`; `laravel`, on the same Redis; `shelf`, in `folder`."""
    database = f"sqlite:///{folder / 'jobs.db'}"
    opened = Database(database)
    create_tables(opened, tables())
    opened.close()
    (folder / "shelf").mkdir()
    return Settings(
        connections={
            "redis": {"url": redis_url},
            "other": {"url": redis_url, "prefix": "other"},
            "sqlite": {"driver": "database", "url": database},
            "laravel": {"driver": "laravel_redis", "url": redis_url, "prefix": "shop_"},
            "shelf": {"driver": "shelf", "folder": str(folder / "shelf")},
        }
    )


def manager_of(settings: Settings) -> Manager:
    """One that knows the shelf."""
    made = make_manager(settings)
    made.extend("shelf", shelf.backend)
    return made


def migration(
    manager: Manager,
    source: str,
    target: str,
    *,
    told: Callable[[Migrated], None] = lambda _: None,
    resend: bool = False,
    now_ms: int = 0,
) -> Migration:
    """A run between two of them."""
    return Migration(
        source_of(manager.connection(source)),
        target_of(manager.connection(target), manager.options_of(target)),
        told,
        lambda: now_ms,
        target,
        resend=resend,
    )


def move(manager: Manager, source: str, target: str, *, resend: bool = False, now_ms: int = 0) -> Migrated:
    """What became of it."""
    return migration(manager, source, target, resend=resend, now_ms=now_ms).run(QUEUE, QUEUE)


def lots(manager: Manager, source: str) -> list[str]:
    """What lies aside there."""
    return source_of(manager.connection(source)).lots(QUEUE)


def fill(connection: Connection, count: int, *, start: int = 0) -> None:
    """Half of them due, half of them later; the payload knows the number."""
    specs = [
        JobSpec(name="order.close", id=id_of(n), queue=QUEUE, data={"n": n}, delay="1h" if n % 2 else None)
        for n in range(start, start + count)
    ]
    for at in range(0, len(specs), 500):
        connection.schedule_many(specs[at : at + 500], OnConflict.KEEP)


_IDS: list[str] = []


def id_of(number: int) -> str:
    """As delayq makes them, because Laravel's queues cannot tell whether another one is taken; in order."""
    while len(_IDS) <= number:
        _IDS.append(new_id())
    return _IDS[number]


def waiting(connection: Connection) -> dict[str, tuple[int, int]]:
    """What waits there: id -> its number and its due time; an id that stands there twice is an error."""
    found: dict[str, tuple[int, int]] = {}
    for job_id, raw, due_ms in _waiting(connection):
        assert job_id not in found
        found[job_id] = (json.loads(bytes(envelopes.decode(raw).data))["n"], due_ms)
    return found


def _waiting(connection: Connection) -> Iterator[tuple[str, bytes, int]]:
    if isinstance(connection, RedisConnection):
        for state in (State.SCHEDULED, State.READY):
            for job in connection.client.iter_jobs(state, queue=QUEUE):
                assert job.due_ms is not None
                yield job.id, job.raw, job.due_ms
        return
    assert isinstance(connection, BrokerConnection)
    cursor = ""
    while True:
        page = connection.broker.page(QUEUE, cursor=cursor, count=500)
        yield from ((job.id, job.envelope, job.due_ms) for job in page.jobs)
        cursor = page.cursor
        if not cursor:
            return


def may_go(job: Waiting) -> str:
    """Nothing keeps it."""
    return ""
