"""A migration whose target says no, dies, or is interrupted: what did not arrive waits where it did, and is counted."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import redis

from delayq.core.errors import BackendError, BackendUnavailable, ConfigError, DelayqError, InvalidInput, OutcomeUnknown
from delayq.core.names import new_id
from delayq.core.spec import JobSpec
from delayq.core.states import Answer, OnConflict
from delayq.drivers.broker import Waiting
from delayq.drivers.migrating.ends import Target
from delayq.drivers.migrating.migration import LOT, Migrated, Migration
from delayq.drivers.migrating.opening import refuse_one_place, source_of, target_of
from delayq.drivers.migrating.taking import Taking
from delayq.drivers.redis_connection import RedisConnection
from delayq.drivers.serving.connection import BrokerConnection
from delayq.manager import Manager
from delayq.settings import Settings
from delayq.settings.tables import ConnectionSettings
from tests.support.moving import (
    FOREIGN,
    QUEUE,
    fill,
    id_of,
    lots,
    manager_of,
    migration,
    move,
    settings_of,
    waiting,
)

pytestmark = pytest.mark.foreign_keys(*FOREIGN)
SOURCES = ["redis", "sqlite", "laravel"]


@pytest.fixture
def settings(redis_url: str, tmp_path: Path) -> Settings:
    return settings_of(redis_url, tmp_path)


@pytest.fixture
def manager(settings: Settings) -> Iterator[Manager]:
    made = manager_of(settings)
    yield made
    made.close()


class Around:
    """A target, and what happens before or after it takes a lot."""

    remembers = True

    def __init__(self, inner: Target, happens: Callable[[], None], *, after: bool = False) -> None:
        self._inner = inner
        self._happens = happens
        self._after = after

    def ready(self, queue: str) -> None:
        self._inner.ready(queue)

    def refuses(self, queue: str, job: Waiting) -> str:
        return self._inner.refuses(queue, job)

    def take(self, queue: str, lot: str, jobs: Sequence[Waiting], taking: Taking, *, again: bool) -> None:
        if not self._after:
            self._happens()
        self._inner.take(queue, lot, jobs, taking, again=again)
        if self._after:  # the answer never comes
            with taking.sending(range(len(jobs))):
                self._happens()

    def settled(self, queue: str, lot: str, jobs: Sequence[Waiting]) -> None:
        self._inner.settled(queue, lot, jobs)

    def close(self) -> None:
        self._inner.close()


def run_around(manager: Manager, source: str, target: str, happens: Callable[[], None], *, after: bool) -> Migration:
    inner = target_of(manager.connection(target), manager.options_of(target))
    around = Around(inner, happens, after=after)
    return Migration(source_of(manager.connection(source)), around, lambda _: None, lambda: 0, target)


def fails(error: BaseException) -> Callable[[], None]:
    def happens() -> None:
        raise error

    return happens


# -- looked at before anything is touched ------------------------------------------------------------------------------


def targets(folder: Path) -> dict[str, tuple[dict[str, Any], type[DelayqError], str]]:
    nobody = f"unix://{folder}/nobody.sock"
    return {
        "away": ({"url": nobody}, BackendUnavailable, "cannot be reached"),
        "no folder": ({"driver": "shelf", "folder": f"{folder}/gone"}, BackendUnavailable, "There is no shelf at"),
        "no table": (
            {"driver": "database", "url": f"sqlite:///{folder}/empty.db"},
            ConfigError,
            "is not ready: table jobs is missing. `delayq database migrate --connection",
        ),
    }


@pytest.mark.parametrize("what", ["away", "no folder", "no table"])
def test_a_target_that_takes_nothing_is_found_before_a_job_is_touched(
    settings: Settings, tmp_path: Path, what: str
) -> None:
    given, kind, sentence = targets(tmp_path)[what]
    known = {**settings.connections, "to": Settings(connections={"to": given}).connections["to"]}
    manager = manager_of(settings.model_copy(update={"connections": known}))
    fill(manager.connection("redis"), 4)
    before = waiting(manager.connection("redis"))
    run = migration(manager, "redis", "to")

    with pytest.raises(kind, match=sentence):
        run.run(QUEUE, QUEUE)

    assert (waiting(manager.connection("redis")), lots(manager, "redis"), run.done) == (before, [], [])
    manager.close()


@pytest.mark.parametrize("source", SOURCES)
def test_a_job_that_the_target_cannot_hold_never_leaves_its_queue(manager: Manager, source: str) -> None:
    """The shelf takes 100,000 bytes and an hour; a lot that holds one of them goes without it."""
    connection = manager.connection(source)
    fill(connection, 4)
    large = JobSpec(name="order.close", id=id_of(4), queue=QUEUE, data={"n": 4, "text": "x" * 100_000})
    late = JobSpec(name="order.close", id=id_of(5), queue=QUEUE, data={"n": 5}, delay="2h")
    connection.schedule_many([large, late], OnConflict.KEEP)
    seen: list[set[str]] = []
    run = migration(manager, source, "shelf", told=lambda _: seen.append(set(waiting(connection))))

    done = run.run(QUEUE, QUEUE)

    assert (done.waiting, done.taken, done.moved, done.back, done.left) == (6, 4, 4, 0, 0)
    assert done.refused.keys() == {id_of(4), id_of(5)}
    assert "bytes as it travels; the connection 'shelf' takes 100,000" in done.refused[id_of(4)]
    assert "can hold a job for 1h at most" in done.refused[id_of(5)]
    assert all(seen[n] >= {id_of(4), id_of(5)} for n in range(len(seen)))  # after each lot, too
    assert waiting(connection).keys() == {id_of(4), id_of(5)}
    assert done.agrees


@pytest.mark.parametrize("source", SOURCES)
def test_a_target_that_goes_away_in_the_middle_leaves_the_rest_where_it_was(
    manager: Manager, tmp_path: Path, source: str
) -> None:
    fill(manager.connection(source), LOT + 50)
    before = waiting(manager.connection(source))

    def goes_away(found: Migrated) -> None:
        (tmp_path / "shelf").rename(tmp_path / "away")

    run = migration(manager, source, "shelf", told=goes_away)
    with pytest.raises(BackendUnavailable, match="There is no shelf at"):
        run.run(QUEUE, QUEUE)

    [found] = run.done
    assert 0 < found.moved < LOT + 50
    assert (found.taken, found.left, found.agrees) == (found.moved + found.back, 0, True)
    left = waiting(manager.connection(source))
    assert (len(left), left.keys() < before.keys()) == (LOT + 50 - found.moved, True)
    assert lots(manager, source) == []
    (tmp_path / "away").rename(tmp_path / "shelf")
    assert move(manager, source, "shelf").moved == LOT + 50 - found.moved


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("error", [KeyboardInterrupt(), BackendError("no"), ZeroDivisionError()], ids=repr)
def test_whatever_ends_a_run_before_it_sends_puts_the_lot_back(
    manager: Manager, source: str, error: BaseException
) -> None:
    fill(manager.connection(source), 9)
    before = waiting(manager.connection(source))
    run = run_around(manager, source, "other", fails(error), after=False)

    with pytest.raises(type(error)):
        run.run(QUEUE, QUEUE)

    assert waiting(manager.connection(source)).keys() == before.keys()
    assert (lots(manager, source), [one.agrees for one in run.done]) == ([], [True])
    assert waiting(manager.connection("other")) == {}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("error", [KeyboardInterrupt(), OutcomeUnknown("lost")], ids=repr)
def test_what_may_have_arrived_is_left_to_the_next_run(manager: Manager, source: str, error: BaseException) -> None:
    """Put back, it would run twice; dropped, it might be lost."""
    fill(manager.connection(source), 9)
    run = run_around(manager, source, "other", fails(error), after=True)

    with pytest.raises(type(error)):
        run.run(QUEUE, QUEUE)

    [found] = run.done
    assert found.taken > 0
    assert (found.moved, found.left, found.agrees) == (0, found.taken, True)
    assert len(waiting(manager.connection(source))) == 9 - found.taken
    done = move(manager, source, "other")
    assert (done.taken, done.moved, len(waiting(manager.connection("other"))), lots(manager, source)) == (9, 9, 9, [])


def test_a_database_whose_table_vanishes_in_the_middle(manager: Manager) -> None:
    fill(manager.connection("redis"), LOT + 10)
    to: Any = manager.connection("sqlite")

    def vanishes(found: Migrated) -> None:
        to.broker.database.write(to.broker.tables.jobs.drop)

    run = migration(manager, "redis", "sqlite", told=vanishes)
    with pytest.raises(
        ConfigError, match=r"has no table jobs\. `delayq database migrate --connection sqlite` makes it"
    ):
        run.run(QUEUE, QUEUE)
    [found] = run.done
    assert len(waiting(manager.connection("redis"))) == LOT + 10 - found.moved
    assert (found.left, lots(manager, "redis")) == (0, [])


# -- one id, several jobs ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["redis", "sqlite"])
@pytest.mark.parametrize("apart", [False, True], ids=["in one lot", "in two lots"])
def test_two_payloads_of_one_id_arrive_once_and_the_other_stays(
    manager: Manager, redis_url: str, target: str, apart: bool
) -> None:
    """Laravel's queues take the same payload twice; where ids count, the second one has no place."""
    twin = json.dumps({"uuid": new_id(), "job": "Mailer@send", "data": {"n": 1}, "attempts": 0, "maxTries": None})
    between = [json.dumps({"uuid": id_of(n), "job": "x", "data": {"n": n}, "attempts": 0}) for n in range(LOT)]
    client = redis.Redis.from_url(redis_url)
    client.rpush(f"shop_queues:{QUEUE}", twin, *(between if apart else ()), twin)
    client.close()
    count = 2 + (LOT if apart else 0)

    done = move(manager, "laravel", target)

    assert (done.waiting, done.moved, list(done.refused.values())) == (count, count - 1, ["its id is taken there"])
    assert (done.agrees, len(waiting(manager.connection(target)))) == (True, count - 1)
    assert len(waiting(manager.connection("laravel"))) == 1
    assert lots(manager, "laravel") == []


def test_a_key_goes_with_its_job(manager: Manager) -> None:
    unique = JobSpec(name="order.close", queue=QUEUE, data={"n": 1}, unique="7", delay="1h")
    for name in ("redis", "sqlite"):
        manager.connection(name).schedule(unique, OnConflict.KEEP)
    done = move(manager, "redis", "sqlite")
    [why] = done.refused.values()
    [owner] = waiting(manager.connection("sqlite"))
    assert (done.moved, why) == (0, f"its unique key is taken there, by the job {owner}")

    broker = manager.connection("sqlite")
    assert isinstance(broker, BrokerConnection)
    broker.broker.clear(QUEUE)
    assert move(manager, "redis", "sqlite").moved == 1
    again = manager.connection("sqlite").schedule(unique, OnConflict.KEEP)
    assert again.outcome is Answer.KEPT


@pytest.mark.parametrize("source", ["redis", "sqlite"])
def test_an_id_that_was_taken_while_its_job_was_aside_is_told(manager: Manager, source: str) -> None:
    connection = manager.connection(source)
    fill(connection, 1)

    def taken() -> None:
        fill(connection, 1)
        raise BackendUnavailable("gone")

    run = run_around(manager, source, "other", taken, after=False)
    with pytest.raises(BackendUnavailable):
        run.run(QUEUE, QUEUE)
    [found] = run.done
    assert (found.taken, found.left, found.agrees) == (1, 1, True)
    assert "it is aside, and its id was taken in orders meanwhile" in found.refused[id_of(0)]
    assert move(manager, source, "other").moved == 1  # the one aside; the other finds its id taken there


# -- what PHP wrote, and what is one place -----------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["laravel", "sqlite"])
def test_what_nobody_here_can_read_stays_with_its_sentence(manager: Manager, redis_url: str, source: str) -> None:
    command = 'C:12:"App\\CloseAll":1:{x}'
    php = {
        "uuid": "f0e1",
        "displayName": "App\\CloseAll",
        "job": "Illuminate\\Queue\\CallQueuedHandler@call",
        "data": {"commandName": "App\\CloseAll", "command": command},
    }
    fill(manager.connection(source), 3)
    raw = json.dumps({**php, "attempts": 0} if source == "laravel" else php)
    if source == "laravel":
        with redis.Redis.from_url(redis_url) as client:
            client.lpush(f"shop_queues:{QUEUE}", raw)
    else:
        broker: Any = manager.connection(source)
        row = {"queue": QUEUE, "payload": raw, "attempts": 0, "available_at": 1, "created_at": 1}
        broker.broker.database.write(lambda to: to.execute(broker.broker.tables.jobs.insert(), row))

    done = move(manager, source, "redis")

    assert (done.moved, list(done.refused)) == (3, ["f0e1"])
    assert "The PHP job App\\CloseAll wrote itself in a form of its own" in done.refused["f0e1"]
    assert done.agrees
    left = manager.connection(source)
    assert isinstance(left, BrokerConnection)
    [job] = left.broker.page(QUEUE, cursor="", count=10).jobs
    assert job.envelope == raw.encode()


def test_two_names_of_one_place(settings: Settings, redis_url: str) -> None:
    known = {**settings.connections, "same": ConnectionSettings(url=settings.connections["redis"].url)}
    manager = manager_of(settings.model_copy(update={"connections": known}))
    one, other = manager.connection("redis"), manager.connection("same")
    assert isinstance(one, RedisConnection)
    with pytest.raises(InvalidInput, match="'redis' and 'same' lead to one place"):
        refuse_one_place(one, other, manager.given, elsewhere=False)
    refuse_one_place(one, other, manager.given, elsewhere=True)
    refuse_one_place(one, manager.connection("other"), manager.given, elsewhere=False)
    with pytest.raises(InvalidInput, match="lead to one place"):
        refuse_one_place(manager.connection("sqlite"), manager.connection("sqlite"), manager.given, elsewhere=False)
    manager.close()
