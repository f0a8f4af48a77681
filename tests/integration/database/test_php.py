"""A real Laravel and delayq on the same tables: what the one queues the other runs, and they agree on what happened."""

from __future__ import annotations

import time
from typing import Any

import pytest

from delayq import Unique, dispatch, handles
from delayq.core.states import Answer, State
from delayq.jobs.batch import batch, find_batch
from delayq.jobs.dispatch import named
from tests.integration.database.conftest import on_sqlite
from tests.support.database_station import DatabaseStation
from tests.support.laravel import told
from tests.support.laravel_worker import LaravelTables
from tests.support.station import QUEUE
from tests.support.tape import Tape
from tests.support.waiting import wait_until

ORDER = {"order_id": 42, "name": "käse \U0001f9c0", "lines": [], "total": 130775545883395173, "none": None}


@pytest.fixture
def php(ledger: DatabaseStation) -> LaravelTables:
    """Laravel, on the tables of the station."""
    return LaravelTables(ledger.engine.url)


@pytest.fixture
def ran(ledger: DatabaseStation) -> Tape[Any]:
    """What the handler `Mailer@send` was given, by Python."""
    ran = ledger.tape()

    @handles("Mailer")
    class Mailer:
        def send(self, context: Any, data: dict[str, Any]) -> None:
            ran.append((context.attempt, data))
            if data.get("fail"):
                raise ValueError("no")

    return ran


def test_python_runs_what_php_queued(ledger: DatabaseStation, php: LaravelTables, ran: Tape[Any]) -> None:
    began = int(time.time())
    php.push(
        {"job": "Mailer@send", "data": ORDER, "queue": QUEUE},
        {"job": "Mailer@send", "data": {"later": 1}, "queue": QUEUE, "delay": 1},
    )
    with ledger.working():
        wait_until(lambda: len(ran) == 2, what="both have run")
    assert (ran[:], time.time() >= began + 1) == ([(1, ORDER), (1, {"later": 1})], True)


def test_php_runs_what_python_queued(ledger: DatabaseStation, php: LaravelTables) -> None:
    wishes: list[dict[str, Any]] = [ORDER, {"release": 0}, {"throw": "no"}]
    refs = [dispatch("Mailer@send", data, tries=1 if "throw" in data else 3) for data in wishes]
    dispatch("Mailer@send", {"later": 1}, delay="1h")
    said = php.work(QUEUE, count=6)
    done = [(line["uuid"], line["attempts"], line["data"]) for line in said if "did" in line]
    assert done[:3] == [(refs[0].id, 1, ORDER), (refs[1].id, 1, {"release": 0}), (refs[2].id, 1, {"throw": "no"})]
    assert {"failed": refs[2].id, "attempts": 1} in said
    assert [(uuid, attempts) for uuid, attempts, _ in done[3:]] == [(refs[1].id, 2)], "it knows the first attempt"
    [failed] = ledger.client.failed().iter_failed(QUEUE)
    assert (failed.id, failed.failure.type if failed.failure else "") == (refs[2].id, "RuntimeException")
    depth = ledger.connection.broker.depth(QUEUE)
    assert (depth.ready, depth.delayed, depth.reserved) == (0, 1, 0)


@on_sqlite
def test_each_retries_what_the_other_gave_up(ledger: DatabaseStation, php: LaravelTables, ran: Tape[Any]) -> None:
    ours = dispatch("Mailer@send", {"fail": True, "throw": "php cannot either"}, tries=1)
    ledger.drain()
    assert ledger.state(ours.id) is State.FAILED
    php.retry(ours.id)
    assert [line["attempts"] for line in php.work(QUEUE, count=1) if "did" in line] == [1]
    assert ledger.retry(ours.id).error is None, "PHP wrote it among the failed again"
    ledger.drain()
    assert [attempt for attempt, _ in ran] == [1, 1]


def test_queue_retry_all_retries_what_python_gave_up(
    ledger: DatabaseStation, php: LaravelTables, ran: Tape[Any]
) -> None:
    """`queue:retry` asks Laravel's queue manager for the connection that the row names."""
    ours = [dispatch("Mailer@send", {"fail": True, "n": n}, tries=1) for n in range(2)]
    ledger.drain()
    assert [ledger.state(ref.id) for ref in ours] == [State.FAILED, State.FAILED]
    assert php.retry("all").count("has been pushed back onto the queue!") == 2
    done = {line["uuid"]: line["attempts"] for line in php.work(QUEUE, count=2) if "did" in line}
    assert done == {ref.id: 1 for ref in ours}
    assert list(ledger.client.failed().iter_failed(QUEUE)) == []


def test_queue_failed_lists_what_python_gave_up_as_laravels_own(
    ledger: DatabaseStation, php: LaravelTables, ran: Tape[Any]
) -> None:
    ours = dispatch("Mailer@send", {"fail": True}, tries=1)
    ledger.drain()
    php.push({"job": "Mailer@send", "data": {"throw": "no"}, "queue": QUEUE})
    php.work(QUEUE)
    listed = php.list_failed()
    [border, *_] = listed.splitlines()
    assert ours.id in listed
    cells = [line.strip("|").split("|") for line in listed.splitlines() if line.startswith("|")]
    assert {len(row) for row in cells} == {5}, listed  # ID, Connection, Queue, Class, Failed At
    assert [row[1].strip() for row in cells[1:]] == ["database", "database"]
    assert len(border) < 120, "nothing but what Laravel lists"


@on_sqlite
def test_what_php_has_run_holds_no_key_and_its_batch_is_mended(ledger: DatabaseStation, php: LaravelTables) -> None:
    key = Unique("k")
    first = dispatch("Mailer@send", {"n": 1}, unique=key)
    assert dispatch("Mailer@send", {"n": 2}, unique=key).id == first.id
    info = batch([named("Mailer@send", {"n": 3}), named("Mailer@send", {"n": 4}).having(delay="1h")]).dispatch()
    php.work(QUEUE, count=2)
    assert dispatch("Mailer@send", {"n": 2}, unique=key, delay="1h").outcome is Answer.CREATED
    assert find_batch(info.id).pending == 2, "PHP counts no members of a batch of ours"
    assert (ledger.client.batches.cancel(info.id).state, find_batch(info.id).skipped) == ("cancelled", 2)


@pytest.mark.parametrize("server_url", ["postgresql"], indirect=True)
def test_both_work_one_queue(ledger: DatabaseStation, php: LaravelTables, ran: Tape[Any]) -> None:
    """On PostgreSQL: a worker of Laravel's gets "locked" on SQLite and may get deadlocks on MySQL, and reports them."""
    for n in range(60):
        dispatch("Mailer@send", {"n": n})
    worker = php.working(QUEUE, count=40)
    with ledger.working(rest_ms=20):
        said, _ = worker.communicate(timeout=60)
        assert worker.returncode == 0, said
        wait_until(lambda: ledger.idle([QUEUE]), what="nothing is left")
    theirs, ours = [line["data"]["n"] for line in told(said) if "did" in line], [data["n"] for _, data in ran]
    assert sorted(theirs + ours) == list(range(60)), "each once"
    assert not [line for line in told(said) if "reported" in line]
