"""A real Laravel and delayq on the same queues: what the one queues the other runs, and they agree on what happened."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import redis

from delayq.core import envelope as envelopes
from delayq.core.backoff import DEFAULT
from delayq.core.outcome import DONE, GiveUp, Policy, before_start, policy_of
from delayq.core.spec import JobSpec
from delayq.core.states import OnConflict, State
from delayq.drivers.base import Settlement
from delayq.drivers.database.engine import Database
from delayq.drivers.database.schema import migrate
from delayq.drivers.database.tables import FailedAlone, tables
from delayq.drivers.failed_store import FailedQuery
from tests.laravel.side import PythonSide, again, data_of, envelope_of, give_up
from tests.support.laravel import Laravel, told
from tests.support.waiting import wait_until

ORDER = {
    "order_id": 42,
    "name": "käse \U0001f9c0",
    "lines": [],
    "total": 130775545883395173,
    "paid": 12.5,
    "none": None,
}


# -- PHP queues, Python runs -----------------------------------------------------------------------------------------


def test_python_runs_what_php_queued(app: Laravel, python: PythonSide) -> None:
    app.push({"job": "Mailer@send", "data": ORDER, "queue": "orders"}, {"job": "Mailer", "queue": "orders"})
    consumer = python.consumer()
    first, second = python.take(consumer, 2)
    envelope = envelope_of(first)
    assert (envelope.name, data_of(first), envelope.attempts, envelope.tries) == ("Mailer@send", ORDER, 0, None)
    assert (first.id, len(first.id)) == (envelope.id, 36)
    assert (envelope_of(second).name, data_of(second)) == ("Mailer", None)
    assert python.end(consumer, first)
    assert python.end(consumer, second)
    assert app.size("orders") == 0


def test_a_delay_of_phps_is_kept_to_its_second(app: Laravel, python: PythonSide) -> None:
    began = time.time()
    app.push({"job": "Mailer@send", "data": {"n": 1}, "queue": "orders", "delay": 2})
    delivery = python.one(python.consumer())
    assert data_of(delivery) == {"n": 1}
    assert time.time() >= int(began) + 2  # Laravel writes whole seconds


def test_a_worker_of_pythons_that_waits_hears_php(app: Laravel, python: PythonSide) -> None:
    consumer = python.consumer()
    assert not consumer.wait(0.02).deliveries
    app.push({"job": "Mailer@send", "data": {"n": 1}, "queue": "orders"})
    found = wait_until(lambda: consumer.wait(1.0).deliveries, what="the wait brings the job")
    assert data_of(found[0]) == {"n": 1}


# -- Python queues, PHP runs -----------------------------------------------------------------------------------------


def test_php_runs_what_python_queued(app: Laravel, python: PythonSide) -> None:
    ref = python.push("Mailer@send", ORDER)
    assert ref.state is State.READY
    (ran,) = app.work("orders")
    assert ran == {"did": "Mailer@send", "uuid": ref.id, "attempts": 1, "data": ORDER}
    assert app.size("orders") == 0


def test_php_waits_until_a_job_of_pythons_is_due(app: Laravel, python: PythonSide) -> None:
    began = time.time()
    ref = python.push("Mailer@send", {"n": 1}, delay="1500ms")
    assert ref.state is State.SCHEDULED
    ran = wait_until(lambda: app.work("orders"), timeout=60, what="PHP runs it")
    assert time.time() - began >= 1.5
    assert ran == [{"did": "Mailer@send", "uuid": ref.id, "attempts": 1, "data": {"n": 1}}]


def test_a_worker_of_phps_that_blocks_is_woken_by_python(app: Laravel, python: PythonSide, client: redis.Redis) -> None:
    worker = app.working("orders", block_for=50)
    wait_until(lambda: client.info("clients")["blocked_clients"], timeout=30, what="PHP blocks")
    ref = python.push("Mailer@send", {"n": 1})
    said, _ = worker.communicate(timeout=60)
    assert [ran["uuid"] for ran in told(said)] == [ref.id]


# -- they agree ------------------------------------------------------------------------------------------------------


def test_attempts_are_counted_by_both(app: Laravel, python: PythonSide) -> None:
    ref = python.push("Mailer@send", {"release": 0})
    consumer = python.consumer()
    counts = [app.work("orders", tries=9)[0]["attempts"]]
    delivery = python.one(consumer)
    counts.append(envelope_of(delivery).attempts + 1)
    assert python.end(consumer, delivery, again(delivery))
    counts.append(app.work("orders", tries=9)[0]["attempts"])
    delivery = python.one(consumer)
    counts.append(envelope_of(delivery).attempts + 1)
    assert counts == [1, 2, 3, 4]
    assert delivery.id == ref.id
    assert python.end(consumer, delivery)
    assert app.size("orders") == 0


def test_what_was_not_started_costs_no_attempt(app: Laravel, python: PythonSide) -> None:
    app.push(
        {"job": "Mailer@send", "data": {"n": 1}, "queue": "orders"},
        {"job": "Mailer@send", "data": {"n": 2}, "queue": "orders"},
    )
    consumer = python.consumer()
    consumer.hand_back(python.take(consumer, 2))
    ran = app.work("orders", count=2)
    assert [(one["attempts"], one["data"]["n"]) for one in ran] == [(1, 1), (1, 2)]


def test_a_release_of_pythons_is_waited_for_by_php(app: Laravel, python: PythonSide) -> None:
    app.push({"job": "Mailer@send", "data": {"n": 1}, "queue": "orders"})
    consumer = python.consumer()
    delivery = python.one(consumer)
    assert python.end(consumer, delivery, again(delivery, 600_000))
    assert app.work("orders") == []
    depth = python.connection.broker.depth("orders")
    assert (depth.ready, depth.delayed, depth.reserved) == (0, 1, 0)


def test_a_release_of_phps_is_waited_for_by_python(app: Laravel, python: PythonSide) -> None:
    python.push("Mailer@send", {"release": 600})
    assert [ran["attempts"] for ran in app.work("orders")] == [1]
    assert not python.consumer().fetch((), 1).deliveries
    assert app.size("orders") == 1


def test_the_last_try_is_the_last_for_both(app: Laravel, python: PythonSide) -> None:
    php_ends, python_ends = (
        python.push("Mailer@send", {"throw": "no"}, tries=2),
        python.push("Mailer@send", {}, tries=1),
    )
    consumer = python.consumer()
    first, second = python.take(consumer, 2)
    assert python.end(consumer, first, again(first))
    assert python.end(consumer, second, give_up(second, ValueError("no such order")))
    ran = app.work("orders", tries=9)
    assert {"failed": php_ends.id, "attempts": 2} in ran
    kept = python.failed(python_ends.id)
    assert kept is not None
    assert (kept.name, kept.failure.message) == ("Mailer@send", "no such order")
    assert json.loads(kept.payload)["attempts"] == 1
    assert app.size("orders") == 0
    once_more = envelopes.rewrite(python.connection.broker.load(kept.payload), attempts=0)
    python.connection.push_raw(once_more, queue="orders")
    assert [(one["uuid"], one["attempts"]) for one in app.work("orders")] == [(python_ends.id, 1)]


@pytest.mark.parametrize(("given", "named"), [({}, "redis"), ({"laravel": "mails"}, "mails")])
def test_a_failed_jobs_table_has_laravels_name_of_the_connection(
    app: Laravel, make_side: Callable[..., PythonSide], tmp_path: Path, given: dict[str, str], named: str
) -> None:
    """`queue:retry` asks Laravel's queue manager for the connection of that name."""
    url = f"sqlite:///{tmp_path / 'failed.db'}"
    with closing(Database(url)) as database:
        migrate(database, FailedAlone(tables().failed))
    python = make_side(failed=url, **given)
    python.push("Mailer@send", {"n": 1}, tries=1)
    consumer = python.consumer()
    delivery = python.one(consumer)
    python.end(consumer, delivery, give_up(delivery, ValueError("no")))
    with closing(sqlite3.connect(tmp_path / "failed.db")) as rows:
        assert rows.execute("SELECT connection FROM failed_jobs").fetchall() == [(named,)]
        theirs = "(uuid, connection, queue, payload, exception, failed_at)"
        php = ("u2", named, "orders", '{"uuid":"u2","job":"x"}', "E: no", "2026-11-22 19:08:29")
        rows.execute(f"INSERT INTO failed_jobs {theirs} VALUES (?, ?, ?, ?, ?, ?)", php)
        rows.commit()
    make = python.connection.backend.failed
    assert make is not None
    with closing(make()) as store:
        assert {job.id for job in store.page(FailedQuery(connection="laravel")).jobs} == {delivery.id, "u2"}


def test_what_phps_worker_forgot_comes_to_python_counted(app: Laravel, make_side: Callable[..., PythonSide]) -> None:
    forgetful = Laravel(app.socket, app.prefix, retry_after=1)
    python = make_side(retry_after="1s")
    ref = python.push("Mailer@send", {"forget": True}, tries=1)
    assert [ran["attempts"] for ran in forgetful.work("orders")] == [1]
    delivery = python.one(python.consumer())
    envelope = envelope_of(delivery)
    assert (delivery.id, envelope.attempts) == (ref.id, 1)
    refused = before_start(envelope, policy_of(envelope, Policy(tries=5, backoff=DEFAULT)), 0)
    assert isinstance(refused, GiveUp)  # as Laravel: MaxAttemptsExceededException


def test_a_job_that_a_worker_of_pythons_held_comes_to_php(app: Laravel, make_side: Callable[..., PythonSide]) -> None:
    python = make_side(retry_after="1s")
    ref = python.push("Mailer@send", {"n": 1})
    consumer = python.consumer()
    held = python.one(consumer)
    ran = wait_until(lambda: app.work("orders", tries=5), timeout=60, what="PHP takes it back")
    assert [(one["uuid"], one["attempts"]) for one in ran] == [(ref.id, 2)]
    assert python.end(consumer, held) is False
    assert python.end(consumer, held, again(held)) is False  # Laravel itself would have it twice now
    assert app.size("orders") == 0


def test_queues_are_read_in_the_same_order(app: Laravel, python: PythonSide) -> None:
    for side in (1, 2):
        app.push({"job": "Mailer@send", "data": {"n": f"low {side}"}, "queue": "low"})
        python.push("Mailer@send", {"n": f"high {side}"}, queue="high")
    by_php = [ran["data"]["n"] for ran in app.work("high,low", count=2)]
    consumer = python.consumer("high", "low")
    by_python = [data_of(delivery)["n"] for delivery in python.take(consumer, 2)]
    assert (by_php, by_python) == (["high 1", "high 2"], ["low 1", "low 2"])


def test_sizes_are_the_same(app: Laravel, python: PythonSide) -> None:
    for n in range(3):
        python.push("Mailer@send", {"n": n})
        app.push({"job": "Mailer@send", "data": {"n": n}, "queue": "orders", "delay": 600})
    python.one(python.consumer())
    depth = python.connection.broker.depth("orders")
    assert (depth.ready, depth.delayed, depth.reserved) == (2, 3, 1)
    assert app.size("orders") == 6
    assert python.connection.broker.queues() == ["orders"]


def test_side_by_side_they_run_each_job_once(app: Laravel, python: PythonSide) -> None:
    each = 150
    specs = [JobSpec(name="Mailer@send", data={"n": n}, queue="orders") for n in range(each)]
    python.connection.schedule_many(specs, OnConflict.KEEP)
    app.push(*({"job": "Mailer@send", "data": {"n": each + n}, "queue": "orders"} for n in range(each)))
    worker, consumer = app.working("orders", count=each), python.consumer()
    ran: list[int] = []
    while worker.poll() is None or app.size("orders"):
        found = consumer.fetch((), 5).deliveries
        ran += [data_of(delivery)["n"] for delivery in found]
        assert consumer.settle([Settlement(delivery, DONE) for delivery in found]).settled == [True] * len(found)
    said, _ = worker.communicate(timeout=60)
    ran += [one["data"]["n"] for one in told(said)]
    assert sorted(ran) == list(range(2 * each))
