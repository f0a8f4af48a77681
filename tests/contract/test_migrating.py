"""Waiting jobs go from one connection to another: none lost, none twice, also when the run is killed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from delayq.core import envelope as envelopes
from delayq.core.errors import Conflict, InvalidInput
from delayq.core.names import new_id
from delayq.core.spec import JobSpec
from delayq.core.states import OnConflict, State
from delayq.drivers.connection import Connection
from delayq.drivers.database.engine import Database
from delayq.drivers.database.schema import migrate as create_tables
from delayq.drivers.database.tables import tables
from delayq.drivers.migrating.migration import LOT, SURE_MS, Migrated, Migration
from delayq.drivers.migrating.opening import source_of, target_of
from delayq.drivers.redis_connection import RedisConnection
from delayq.drivers.serving.connection import BrokerConnection
from delayq.jobs.current import make_manager
from delayq.manager import Manager
from delayq.settings import Settings
from tests.support.waiting import wait_until

pytestmark = pytest.mark.foreign_keys("other:*", "shop_*")
HOUR_MS = 3_600_000
QUEUE = "orders"


@pytest.fixture
def settings(redis_url: str, tmp_path: Path) -> Settings:
    """`redis`; `other`, which has a prefix of its own; `sqlite`; `laravel`, on the same Redis."""
    database = f"sqlite:///{tmp_path / 'jobs.db'}"
    opened = Database(database)
    create_tables(opened, tables())
    opened.close()
    return Settings(
        connections={
            "redis": {"url": redis_url},
            "other": {"url": redis_url, "prefix": "other"},
            "sqlite": {"driver": "database", "url": database},
            "laravel": {"driver": "laravel_redis", "url": redis_url, "prefix": "shop_"},
        }
    )


@pytest.fixture
def manager(settings: Settings) -> Iterator[Manager]:
    made = make_manager(settings)
    yield made
    made.close()


def fill(connection: Connection, count: int, *, start: int = 0) -> None:
    """Half of them due, half of them later; the payload knows the number."""
    specs = [
        JobSpec(name="order.close", id=_id(n), queue=QUEUE, data={"n": n}, delay="1h" if n % 2 else None)
        for n in range(start, start + count)
    ]
    for at in range(0, len(specs), 500):
        connection.schedule_many(specs[at : at + 500], OnConflict.KEEP)


_IDS: list[str] = []


def _id(number: int) -> str:
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


def move(manager: Manager, source: str, target: str, *, resend: bool = False, now_ms: int = 0) -> Migrated:
    migration = Migration(
        source_of(manager.connection(source)),
        target_of(manager.connection(target), manager.options_of(target)),
        lambda _: None,
        lambda: now_ms,
        resend=resend,
    )
    return migration.run(QUEUE, QUEUE)


WAYS = [("redis", "sqlite"), ("sqlite", "redis"), ("redis", "other"), ("laravel", "redis")]


@pytest.mark.parametrize(("source", "target"), [*WAYS, ("redis", "laravel")])
def test_everything_that_waits_goes_with_its_id_and_its_time(manager: Manager, source: str, target: str) -> None:
    fill(manager.connection(source), 2 * LOT + 7)
    before = waiting(manager.connection(source))

    done = move(manager, source, target)

    assert (done.waiting, done.taken, done.moved) == (len(before), len(before), len(before))
    assert (done.refused, done.staying) == ({}, "")
    after = waiting(manager.connection(target))
    assert after.keys() == before.keys()
    for job_id, (number, due_ms) in after.items():
        assert number == before[job_id][0]
        if number % 2:  # a table counts the delay anew by its own clock, and so may be a little late
            assert 0 <= due_ms - before[job_id][1] < 60_000
    assert waiting(manager.connection(source)) == {}
    assert source_of(manager.connection(source)).lots(QUEUE) == []


@pytest.mark.parametrize(("source", "target"), WAYS)
def test_what_cannot_go_waits_again_where_it_did(manager: Manager, source: str, target: str) -> None:
    fill(manager.connection(source), 6)
    taken = JobSpec(name="another", id=_id(3), queue=QUEUE, data={"n": -1}, delay="2h")
    manager.connection(target).schedule(taken, OnConflict.KEEP)

    done = move(manager, source, target)

    assert (done.taken, done.moved, done.refused) == (6, 5, {_id(3): "its id is taken there"})
    assert done.agrees
    assert waiting(manager.connection(source)).keys() == {_id(3)}
    assert waiting(manager.connection(target))[_id(3)][0] == -1
    assert source_of(manager.connection(source)).lots(QUEUE) == []


@pytest.mark.parametrize(("source", "target"), WAYS)
@pytest.mark.parametrize("dies", ["before it is sent", "before it is dropped"])
def test_what_a_run_left_is_taken_up_by_the_next(manager: Manager, source: str, target: str, dies: str) -> None:
    """The second time, jobs of that lot may have been done and forgotten already where they went."""
    fill(manager.connection(source), 10)
    left, to = source_of(manager.connection(source)), manager.connection(target)
    lot = "06f0000000000000000000000g"
    assert left.set_aside(QUEUE, lot, 4) == 4
    if dies == "before it is dropped":
        end = target_of(to, manager.options_of(target))
        assert end.take(QUEUE, lot, left.lot(QUEUE, lot)) == [""] * 4
        if isinstance(to, RedisConnection):
            assert to.client.cancel(left.lot(QUEUE, lot)[0].id, queue=QUEUE) == "cancelled"  # gone, as if it had run

    done = move(manager, source, target)

    assert (done.taken, done.moved, done.refused) == (10, 10, {})
    gone = 1 if dies == "before it is dropped" and isinstance(to, RedisConnection) else 0
    assert len(waiting(to)) == 10 - gone
    assert waiting(manager.connection(source)) == {}


def test_a_lot_that_may_have_been_sent_a_week_ago_is_not_sent_again(manager: Manager) -> None:
    fill(manager.connection("sqlite"), 3)
    left = source_of(manager.connection("sqlite"))
    left.set_aside(QUEUE, "06f0000000000000000000000g", 2)
    old = int("06f0000000000000000000000g", 32) >> 82
    later = old + SURE_MS + 1

    with pytest.raises(Conflict, match=r"set aside .* ago by a run that did not end"):
        move(manager, "sqlite", "redis", now_ms=later)
    assert len(waiting(manager.connection("redis"))) == 0

    assert move(manager, "sqlite", "redis", now_ms=later, resend=True).moved == 3


def test_members_of_batches_stay_with_their_batch(manager: Manager) -> None:
    source = manager.connection("redis")
    fill(source, 2)
    member = {
        "v": 1,
        "id": "m",
        "name": "n",
        "queue": QUEUE,
        "data": {"n": 9},
        "attempts": 0,
        "created_ms": 1,
        "batch": {"id": "b"},
    }
    source.push_raw(json.dumps(member).encode(), delay="1h")

    done = move(manager, "redis", "other")

    assert (done.moved, done.staying) == (2, "1 belong to batches, which count them here")
    assert waiting(source).keys() == {"m"}


@pytest.mark.parametrize(("source", "target"), [("redis", "sqlite"), ("sqlite", "redis")])
def test_a_queue_of_several_shards_is_one_queue(manager: Manager, source: str, target: str) -> None:
    redis = manager.connection("redis")
    assert isinstance(redis, RedisConnection)
    redis.client.queue_set(QUEUE, shards=3)
    fill(manager.connection(source), 60)
    manager.connection(target).schedule(
        JobSpec(name="another", id=_id(4), queue=QUEUE, data={"n": -1}), OnConflict.KEEP
    )

    done = move(manager, source, target)

    assert (done.taken, done.moved, done.refused) == (60, 59, {_id(4): "its id is taken there"})
    assert len(waiting(manager.connection(target))) == 60
    assert waiting(manager.connection(source)).keys() == {_id(4)}
    assert source_of(manager.connection(source)).lots(QUEUE) == []


def test_connections_that_keep_no_jobs_are_refused(manager: Manager) -> None:
    null = manager.connection("null")
    with pytest.raises(InvalidInput, match="'null' keeps no jobs, so there is nothing to move from it"):
        source_of(null)
    with pytest.raises(InvalidInput, match="'null' keeps no jobs, so none can be moved to it"):
        target_of(null, manager.options_of("null"))


def test_resend_is_refused_where_it_says_nothing(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "delayq.toml").write_text(_toml(settings))
    command = [sys.executable, "-m", "delayq", "migrate", "--from", "redis", "--to", "sqlite", "--resend"]
    env = {**os.environ, "DELAYQ_CONFIG": str(tmp_path / "delayq.toml")}

    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert "--resend has nothing to say: sqlite remembers nothing" in done.stderr
    assert "Traceback" not in done.stderr


FULL = os.environ.get("DELAYQ_CHAOS") == "full"
MANY = 100_000 if FULL else 8_000


@pytest.mark.chaos
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("source", "target"), [("sqlite", "redis"), ("laravel", "redis"), ("redis", "other")])
def test_killed_twice_it_loses_nothing_and_moves_nothing_twice(
    settings: Settings, manager: Manager, tmp_path: Path, source: str, target: str
) -> None:
    fill(manager.connection(source), MANY)
    (tmp_path / "delayq.toml").write_text(_toml(settings))
    command = [sys.executable, "-m", "delayq", "migrate", "--from", source, "--to", target, "--json"]
    env = {**os.environ, "DELAYQ_CONFIG": str(tmp_path / "delayq.toml")}
    chance = random.Random(7)

    arrived = manager.connection(target)
    assert isinstance(arrived, RedisConnection)
    for part in (3, 2):
        aim = _count(arrived) + (MANY - _count(arrived)) // part + chance.randrange(LOT)
        with subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as run:
            wait_until(partial(_reached, arrived, aim), what="some have arrived")
            run.send_signal(signal.SIGKILL)
        assert run.returncode == -signal.SIGKILL
        assert aim <= _count(arrived) < MANY
    last = subprocess.run(command, env=env, capture_output=True, text=True, check=False)

    assert last.returncode == 0, last.stderr
    (told,) = (one for one in json.loads(last.stdout)["queues"] if one["queue"] == QUEUE)
    assert told["taken"] == told["moved"]
    assert {job_id: number for job_id, (number, _) in waiting(manager.connection(target)).items()} == {
        _id(n): n for n in range(MANY)
    }
    assert waiting(manager.connection(source)) == {}


def _count(connection: RedisConnection) -> int:
    (stats,) = connection.client.stats(QUEUE)
    return stats.scheduled + stats.ready


def _reached(connection: RedisConnection, aim: int) -> bool:
    return _count(connection) >= aim


def _toml(settings: Settings) -> str:
    lines = []
    for name, given in settings.connections.items():
        lines += [f"[connections.{name}]", f'driver = "{given.driver}"', f'url = "{given.place or given.url}"']
        if given.prefix:
            lines.append(f'prefix = "{given.prefix}"')
    return "\n".join(lines)
