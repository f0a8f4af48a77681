"""`delayq migrate`: what it says of jobs that stay, how it ends when it is asked to, and what it refuses."""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path

import pytest
import redis

from delayq import DelayQ
from delayq.core.spec import JobSpec
from delayq.drivers.database.engine import Database
from delayq.drivers.database.schema import migrate as create_tables
from delayq.drivers.database.tables import tables
from delayq.drivers.migrating.alone import alone
from delayq.jobs.current import make_manager
from delayq.settings import Settings
from tests.cli.conftest import Inline
from tests.support.waiting import wait_until

pytestmark = pytest.mark.foreign_keys("shop_*")
MANY = 4_000
FROM_LARAVEL = ("migrate", "--from", "laravel", "--to", "default")


@pytest.fixture
def shop(inline: Inline, redis_url: str, tmp_path: Path) -> Inline:
    """`laravel` and `jobs`, an SQLite file that has its tables; `empty`, one that has none."""
    opened = Database(f"sqlite:///{tmp_path / 'jobs.db'}")
    create_tables(opened, tables())
    opened.close()
    (tmp_path / "delayq.toml").write_text(f"""
[connections.laravel]
driver = "laravel_redis"
url = "{redis_url}"
prefix = "shop_"

[connections.jobs]
driver = "database"
url = "sqlite:///{tmp_path / "jobs.db"}"

[connections.empty]
driver = "database"
url = "sqlite:///{tmp_path / "empty.db"}"
""")
    return inline


def test_a_payload_that_nobody_here_can_read_stays_with_its_sentence(shop: Inline, redis_url: str) -> None:
    unreadable = {
        "uuid": "f0e1",
        "job": "Illuminate\\Queue\\CallQueuedHandler@call",
        "data": {"commandName": "App\\Close", "command": 'C:9:"App\\Close":1:{x}'},
        "attempts": 0,
    }
    plain = {"uuid": "aa", "job": "Mailer@send", "data": [], "attempts": 0}
    with redis.Redis.from_url(redis_url) as client:
        client.rpush("shop_queues:mail", json.dumps(unreadable), json.dumps(plain))

    done = shop(*FROM_LARAVEL)
    sentence = "The PHP job App\\Close wrote itself in a form of its own, which only PHP can read."
    assert (done.code, done.lines) == (4, ["mail: 1 of 1 moved"])
    assert f"f0e1 stays: {sentence}\n" in done.err
    again = shop(*FROM_LARAVEL, "--json")
    assert again.json["target_remembers"] is True
    [told] = again.json["queues"]
    assert (again.code, told["moved"], told["stay"]) == (4, 0, [{"id": "f0e1", "why": sentence}])


def test_asked_to_end_it_carries_the_lot_through_and_says_so(shop: Inline, q: DelayQ) -> None:
    for at in range(0, MANY, 1_000):
        q.schedule_many([JobSpec(name="order.close", queue="orders", data={"n": n}) for n in range(at, at + 1_000)])
    arrived = Database(f"sqlite:///{Path.cwd() / 'jobs.db'}")

    def count() -> int:
        with arrived.engine.connect() as connection:
            return int(connection.exec_driver_sql("SELECT count(*) FROM jobs WHERE queue = 'orders'").scalar_one())

    def ask() -> None:
        wait_until(lambda: count() > 0, what="some have arrived")
        os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    asking = threading.Thread(target=ask)
    asking.start()
    done = shop("migrate", "--from", "default", "--to", "jobs", "--json")
    asking.join()

    assert (done.code, "Stopped: the others wait in default as before" in done.err) == (130, True)
    assert (done.json["target_remembers"], "does not remember" in done.err) == (False, False)
    [told] = done.json["queues"]
    [stats] = q.stats("orders")
    assert (told["moved"], told["still_aside"], told["put_back"]) == (count(), 0, 0)
    assert 0 < count() < MANY
    assert stats.ready + stats.scheduled == MANY - count()
    assert signal.getsignal(signal.SIGTERM) is before
    arrived.close()


def test_a_second_run_out_of_one_place_is_refused_while_one_is_under_way(shop: Inline, q: DelayQ) -> None:
    """It would take the lot in hand for one that was left, and send it again."""
    q.schedule("order.close", delay="1h", queue="orders")
    words = ("migrate", "--from", "default", "--to", "jobs")
    settings = Settings()
    manager = make_manager(settings)
    with alone(manager.connection("default"), manager.given, settings.data_dir):
        done = shop(*words)
        assert (done.code, done.out) == (4, "")
        assert "Another run is moving jobs out of default just now." in done.err
        assert [stats.scheduled for stats in q.stats("orders")] == [1]
    manager.close()
    assert shop(*words).lines == ["orders: 1 of 1 moved"]


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (("--from", "default", "--to", "empty"), 2, "is not ready: table jobs is missing."),
        (("--from", "default", "--to", "null"), 2, "The connection 'null' keeps no jobs, so none can be moved to it."),
        (("--from", "sync", "--to", "jobs"), 2, "The connection 'sync' keeps no jobs, so there is nothing to move"),
        (("--from", "default", "--to", "nobody"), 2, "There is no connection 'nobody'"),
        (("--from", "jobs", "--to", "jobs"), 2, "--from and --to are both jobs."),
        (("--from", "default", "--to", "jobs", "--to-queue", "x"), 2, "--to-queue x would put all queues into one."),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_cannot_be_is_said_before_anything_is_touched(
    shop: Inline, q: DelayQ, words: tuple[str, ...], code: int, sentence: str
) -> None:
    q.schedule("order.close", delay="1h", queue="orders")
    done = shop("migrate", *words)
    assert (done.code, done.out, sentence in done.err) == (code, "", True), done.err
    [stats] = q.stats("orders")
    assert stats.scheduled == 1
