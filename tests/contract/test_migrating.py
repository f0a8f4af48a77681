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

from delayq.core.errors import Conflict, InvalidInput
from delayq.core.spec import JobSpec
from delayq.core.states import OnConflict
from delayq.drivers.migrating.migration import LOT, SURE_MS
from delayq.drivers.migrating.opening import source_of, target_of
from delayq.drivers.migrating.taking import Arrival, Taking
from delayq.drivers.redis_connection import RedisConnection
from delayq.manager import Manager
from delayq.settings import Settings
from tests.support.moving import FOREIGN, QUEUE, fill, id_of, lots, manager_of, may_go, move, settings_of, waiting
from tests.support.waiting import wait_until

pytestmark = pytest.mark.foreign_keys(*FOREIGN)


@pytest.fixture
def settings(redis_url: str, tmp_path: Path) -> Settings:
    return settings_of(redis_url, tmp_path)


@pytest.fixture
def manager(settings: Settings) -> Iterator[Manager]:
    made = manager_of(settings)
    yield made
    made.close()


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
    taken = JobSpec(name="another", id=id_of(3), queue=QUEUE, data={"n": -1}, delay="2h")
    manager.connection(target).schedule(taken, OnConflict.KEEP)

    done = move(manager, source, target)

    assert (done.taken, done.moved, done.refused) == (6, 5, {id_of(3): "its id is taken there"})
    assert done.agrees
    assert waiting(manager.connection(source)).keys() == {id_of(3)}
    assert waiting(manager.connection(target))[id_of(3)][0] == -1
    assert source_of(manager.connection(source)).lots(QUEUE) == []


@pytest.mark.parametrize(("source", "target"), WAYS)
@pytest.mark.parametrize("dies", ["before it is sent", "before it is dropped"])
def test_what_a_run_left_is_taken_up_by_the_next(manager: Manager, source: str, target: str, dies: str) -> None:
    """The second time, jobs of that lot may have been done and forgotten already where they went."""
    fill(manager.connection(source), 10)
    left, to = source_of(manager.connection(source)), manager.connection(target)
    lot = "06f0000000000000000000000g"
    assert left.set_aside(QUEUE, lot, 4, may_go) == 4
    if dies == "before it is dropped":
        end = target_of(to, manager.options_of(target))
        taking = Taking(4)
        end.take(QUEUE, lot, left.lot(QUEUE, lot), taking, again=False)
        assert taking.places(Arrival.THERE) == [0, 1, 2, 3]
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
    left.set_aside(QUEUE, "06f0000000000000000000000g", 2, may_go)
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
        JobSpec(name="another", id=id_of(4), queue=QUEUE, data={"n": -1}), OnConflict.KEEP
    )

    done = move(manager, source, target)

    assert (done.taken, done.moved, done.refused) == (60, 59, {id_of(4): "its id is taken there"})
    assert len(waiting(manager.connection(target))) == 60
    assert waiting(manager.connection(source)).keys() == {id_of(4)}
    assert source_of(manager.connection(source)).lots(QUEUE) == []


def test_connections_that_keep_no_jobs_are_refused(manager: Manager) -> None:
    null = manager.connection("null")
    with pytest.raises(InvalidInput, match="'null' keeps no jobs, so there is nothing to move from it"):
        source_of(null)
    with pytest.raises(InvalidInput, match="'null' keeps no jobs, so none can be moved to it"):
        target_of(null, manager.options_of("null"))


def test_a_lot_that_was_meant_for_elsewhere_is_not_sent_here(manager: Manager) -> None:
    """It may have arrived there before that run was killed."""
    fill(manager.connection("redis"), 5)
    source, elsewhere = source_of(manager.connection("redis")), "06f0000000000000000000000g-12345678"
    assert source.set_aside(QUEUE, elsewhere, 2, may_go) == 2

    with pytest.raises(Conflict, match="set aside by a run to another connection or queue that did not end"):
        move(manager, "redis", "sqlite")
    assert (len(waiting(manager.connection("redis"))), waiting(manager.connection("sqlite"))) == (3, {})

    assert move(manager, "redis", "sqlite", resend=True).moved == 5
    assert lots(manager, "redis") == []


FULL = os.environ.get("DELAYQ_CHAOS") == "full"
MANY = 100_000 if FULL else 3_000


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
    total, parts = MANY, [3, 2]
    while parts:
        left = total - _count(arrived)
        aim = total - left + min(left, left // parts[0] + chance.randrange(LOT))
        with subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as run:
            wait_until(partial(_reached, arrived, aim), timeout=120, what="some have arrived")
            run.send_signal(signal.SIGKILL)
        assert aim <= _count(arrived) <= total
        if _count(arrived) < total:
            assert run.returncode == -signal.SIGKILL
            parts.pop(0)
        else:  # it was done before it was killed: once more, with as many again
            fill(manager.connection(source), MANY, start=total)
            total += MANY
    last = subprocess.run(command, env=env, capture_output=True, text=True, check=False)

    assert last.returncode == 0, last.stderr
    (told,) = (one for one in json.loads(last.stdout)["queues"] if one["queue"] == QUEUE)
    assert told["taken"] == told["moved"]
    assert {job_id: number for job_id, (number, _) in waiting(manager.connection(target)).items()} == {
        id_of(n): n for n in range(total)
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
        if name == "shelf":
            continue
        lines += [f"[connections.{name}]", f'driver = "{given.driver}"', f'url = "{given.place or given.url}"']
        if given.prefix:
            lines.append(f'prefix = "{given.prefix}"')
    return "\n".join(lines)
