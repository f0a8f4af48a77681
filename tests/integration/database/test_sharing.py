"""One `jobs` table, two languages: what Laravel wrote is worked, nothing of it is damaged, and nobody takes what the
other holds. Laravel's side is its own statements."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import msgspec
import pytest
from sqlalchemy import text

from delayq.core import envelope as envelopes
from delayq.core.errors import ConfigError
from delayq.core.failure import Failure
from delayq.core.options import Options
from delayq.core.spec import JobSpec, prepare
from delayq.core.states import Answer, OnConflict
from delayq.drivers.broker import Again, Bury, Forget
from delayq.drivers.database.broker import DatabaseBroker
from delayq.drivers.database.failed import DatabaseFailedStore
from delayq.drivers.database.schema import lacking, migrate
from delayq.drivers.failed_store import FailedJob, FailedQuery
from delayq.drivers.null import NullConnection
from delayq.drivers.serving.connection import item_of
from delayq.drivers.serving.consumer import claim_of
from delayq.drivers.serving.failed_desk import FailedDesk
from tests.integration.database.conftest import broker_on
from tests.support.laravel_tables import Laravel, object_job, string_job

UUID = "0b3bd2a5-6a35-4bd2-8a0a-2d6c1a3a7c11"
Q = "shared"


@pytest.fixture
def broker(laravel: Laravel, url: str) -> Iterator[DatabaseBroker]:
    with closing(broker_on(url)) as broker:
        migrate(broker.database, broker.tables)
        yield broker


def now_s() -> int:
    return int(time.time())


def push(broker: DatabaseBroker, **spec: Any) -> str:
    now_ms = broker.now_ms()
    made = prepare(JobSpec(queue=Q, **spec), Options(), now_ms)
    return broker.push([item_of(made, now_ms)], OnConflict.KEEP)[0].id


def test_the_tables_get_what_they_lack(laravel: Laravel, url: str) -> None:
    laravel.push(Q, string_job(UUID, "order.close", {"order_id": 42}), now_s())
    before = laravel.rows()[0]
    with closing(broker_on(url)) as broker:
        assert all(("delayq_" in step) for step in lacking(broker.database, broker.tables))
        assert migrate(broker.database, broker.tables)
        assert migrate(broker.database, broker.tables) == []
    after = laravel.rows()[0]
    assert tuple(after)[: len(before)] == tuple(before)


def test_what_older_versions_kept_in_columns_of_failed_jobs_moves_beside_it(laravel: Laravel, url: str) -> None:
    """Also after a run that was killed half-way: MySQL commits each step by itself."""
    failure = Failure("ValueError", "no", at_ms=1_795_374_508_344, attempt=2)
    about = {"id": UUID, "name": "order.close", "failure": msgspec.to_builtins(failure)}
    theirs = string_job(UUID[:-1] + "2", "order.close", {})
    with closing(broker_on(url)) as broker:
        migrate(broker.database, broker.tables)
        with broker.database.engine.begin() as connection:
            for column in ("delayq_failed_ms BIGINT", "delayq_about TEXT"):
                connection.exec_driver_sql(f"ALTER TABLE failed_jobs ADD COLUMN {column}")
            old = "INSERT INTO failed_jobs (uuid, connection, queue, payload, exception, failed_at"
            row = {"uuid": UUID, "payload": string_job(UUID, "order.close", {}), "about": json.dumps(about)}
            values = f"(:uuid, 'jobs', '{Q}', :payload, 'ValueError: no', '2026-11-22 19:08:28', 1795374508344, :about)"
            connection.execute(text(f"{old}, delayq_failed_ms, delayq_about) VALUES {values}"), row)
            php = text(f"{old}) VALUES (:uuid, 'database', '{Q}', :payload, 'E: no', '2026-11-22 19:08:29')")
            connection.execute(php, {"uuid": UUID[:-1] + "2", "payload": theirs})
        with pytest.raises(ConfigError, match="what delayq knows of rows in failed_jobs is not yet moved"):
            broker.ready([Q])
        steps = migrate(broker.database, broker.tables)
        assert steps == [
            "what delayq knows of rows in failed_jobs moved",
            "column failed_jobs.delayq_about dropped",
            "column failed_jobs.delayq_failed_ms dropped",
        ]
        assert migrate(broker.database, broker.tables) == []
        broker.ready([Q])
        store = DatabaseFailedStore(broker.database, broker.tables.failed, connection="jobs", laravel="database")
        first, second = store.page(FailedQuery(connection="jobs")).jobs
        assert (first.id, first.failed_ms, first.failure) == (UUID, 1_795_374_508_344, failure)
        assert (second.id, second.failure.type) == (UUID[:-1] + "2", "E")
        assert set(laravel.failed()[0]._fields) == {
            "id", "uuid", "connection", "queue", "payload", "exception", "failed_at"
        }  # fmt: skip


def test_what_is_known_of_a_failed_job_that_php_removed_is_no_job_and_goes_with_prune(
    laravel: Laravel, broker: DatabaseBroker
) -> None:
    store = DatabaseFailedStore(broker.database, broker.tables.failed, connection="jobs", laravel="database")
    job = FailedJob(
        id=UUID, connection="jobs", queue=Q, name="x", payload=b"{}", failure=Failure("E", "no"), failed_ms=1_000
    )
    store.add(job)
    about = text("SELECT count(*) FROM failed_jobs_delayq_about")
    with broker.database.engine.begin() as connection:
        connection.execute(text("DELETE FROM failed_jobs"))
        assert connection.execute(about).scalar() == 1
    assert (store.count(), store.page().jobs, store.get(UUID)) == (0, (), None)
    store.prune(1)
    with broker.database.engine.begin() as connection:
        assert connection.execute(about).scalar() == 0


def test_pruning_at_the_desk_removes_what_is_known_of_jobs_that_php_removed(
    laravel: Laravel, broker: DatabaseBroker
) -> None:
    store = DatabaseFailedStore(broker.database, broker.tables.failed, connection="jobs")
    store.add(unreadable("jobs"))
    about = text("SELECT count(*) FROM failed_jobs_delayq_about")
    with broker.database.engine.begin() as connection:
        connection.execute(text("DELETE FROM failed_jobs"))
        assert connection.execute(about).scalar() == 1
    desk = FailedDesk(NullConnection("jobs", Options(queue=Q)), Options(queue=Q), store, bytes)
    assert desk.prune_failed(older="0s") == 0
    with broker.database.engine.begin() as connection:
        assert connection.execute(about).scalar() == 0


def unreadable(connection: str, failed_ms: int = 1_000) -> FailedJob:
    return FailedJob(
        id=f"x-{'a' * 40}",
        connection=connection,
        queue=Q,
        name="",
        payload=b"no payload",
        failure=Failure("BadEnvelope", "no"),
        failed_ms=failed_ms,
    )


def test_the_same_bytes_on_two_connections_are_two_failed_jobs(laravel: Laravel, broker: DatabaseBroker) -> None:
    store = DatabaseFailedStore(broker.database, broker.tables.failed)
    for failed_ms in (1_000, 2_000):  # each fails twice: the row of the same job is replaced
        for name in ("jobs", "tubes"):
            store.add(unreadable(name, failed_ms))
    found = store.page().jobs
    assert sorted((job.connection, job.failed_ms) for job in found) == [("jobs", 2_000), ("tubes", 2_000)]
    for job in found:
        kept = store.get(job.id)
        assert kept is not None
        assert kept.connection == job.connection
    assert store.forget([job.id for job in found]) == 2


def test_a_string_job_of_laravel_is_worked(laravel: Laravel, broker: DatabaseBroker) -> None:
    laravel.push(Q, string_job(UUID, "order.close", {"order_id": 42}, maxTries=3, timeout=20, backoff="10,60"), now_s())
    (delivery,) = broker.reserve(Q, 10)
    envelope = envelopes.decode(delivery.raw)
    assert (delivery.id, envelope.name, envelope.queue) == (UUID, "order.close", Q)
    assert msgspec.json.decode(envelope.data) == {"order_id": 42}
    assert (envelope.tries, envelope.timeout_ms, envelope.backoff) == (3, 20_000, [10_000, 60_000])
    assert laravel.rows()[0].attempts == 1
    assert broker.settle([Forget(claim_of(delivery), delivery.raw)]) == [True]
    assert laravel.rows() == []


def test_its_payload_comes_back_as_it_was(laravel: Laravel, broker: DatabaseBroker) -> None:
    payload = string_job(UUID, "order.close", {"a": [1, {"é": None}]}, **{"illuminate:log:context": {"data": []}})
    laravel.push(Q, payload, now_s())
    (delivery,) = broker.reserve(Q, 1)
    changed = envelopes.rewrite(delivery.raw, attempts=1, exceptions=1)
    assert broker.settle([Again(claim_of(delivery), delivery.raw, changed, 5_000, 1)]) == [True]
    (row,) = laravel.rows()
    assert json.loads(row.payload) == json.loads(payload)
    assert (row.attempts, row.reserved_at) == (1, None)
    assert row.available_at >= now_s() + 4


def test_a_row_that_names_no_id_keeps_its_own_over_attempts(laravel: Laravel, broker: DatabaseBroker) -> None:
    payload = json.loads(string_job(UUID, "order.close", {"a": 1}, maxExceptions=3))
    del payload["uuid"]
    laravel.push(Q, json.dumps(payload), now_s())
    ids = set()
    for attempt in range(1, 4):
        (delivery,) = broker.reserve(Q, 1)
        ids.add(delivery.id)
        changed = envelopes.rewrite(delivery.raw, attempts=attempt, exceptions=attempt)
        assert broker.settle([Again(claim_of(delivery), delivery.raw, changed, 0, attempt)]) == [True]
    assert len(ids) == 1
    assert broker.find(Q, ids.pop()) is not None


def test_php_objects_are_left_alone_unless_they_are_wanted(laravel: Laravel, broker: DatabaseBroker, url: str) -> None:
    laravel.push(Q, object_job(UUID, "App\\Jobs\\CloseOrder"), now_s())
    push(broker, name="ours")
    before = laravel.rows()[0]
    assert [envelopes.decode(one.raw).name for one in broker.reserve(Q, 10)] == ["ours"]
    assert laravel.rows()[0] == before
    with closing(broker_on(url, php_objects=True)) as wanting:
        (delivery,) = wanting.reserve(Q, 10)
    envelope = envelopes.decode(delivery.raw)
    assert envelope.name == "App\\Jobs\\CloseOrder"
    assert msgspec.json.decode(envelope.data) == {"orderId": 42}


def test_a_worker_of_laravel_gets_our_job(laravel: Laravel, broker: DatabaseBroker) -> None:
    job_id = push(broker, name="App\\Mailer@send", data={"to": "ann"}, tries=4)
    row = laravel.pop(Q, now_s())
    assert row is not None
    payload = json.loads(row.payload)
    assert (payload["uuid"], payload["job"], payload["data"]) == (job_id, "App\\Mailer@send", {"to": "ann"})
    assert (payload["displayName"], payload["maxTries"]) == ("App\\Mailer", 4)
    laravel.release(row, now_s(), 0)
    (delivery,) = broker.reserve(Q, 1)
    envelope = envelopes.decode(delivery.raw)
    assert (delivery.id, envelope.attempts, envelope.tries) == (job_id, 1, 4)


def test_a_delayed_job_of_ours_is_never_early_for_laravel(laravel: Laravel, broker: DatabaseBroker) -> None:
    before_ms = broker.now_ms()
    push(broker, name="later", delay="2500ms")
    (row,) = laravel.rows()
    assert before_ms + 2500 <= row.available_at * 1000 < broker.now_ms() + 3500
    assert laravel.pop(Q, row.available_at - 1) is None
    assert laravel.pop(Q, row.available_at) is not None


def test_what_one_holds_the_other_leaves(laravel: Laravel, broker: DatabaseBroker) -> None:
    push(broker, name="ours")
    (delivery,) = broker.reserve(Q, 1)
    assert laravel.pop(Q, now_s()) is None
    (row,) = laravel.rows()
    assert broker.renew([claim_of(delivery)]) == [True]
    assert laravel.rows()[0].reserved_at >= row.reserved_at
    broker.settle([Forget(claim_of(delivery), b"")])
    laravel.push(Q, string_job(UUID, "theirs", {}), now_s())
    assert laravel.pop(Q, now_s()) is not None
    assert broker.reserve(Q, 1) == []


def test_who_was_overtaken_by_laravel_is_fenced(laravel: Laravel, broker: DatabaseBroker) -> None:
    push(broker, name="ours")
    (delivery,) = broker.reserve(Q, 1)
    taken = laravel.pop(Q, now_s() + 1000)  # as if nobody had renewed it for so long
    assert taken is not None
    claim = claim_of(delivery)
    assert broker.renew([claim]) == [False]
    assert broker.settle([Forget(claim, delivery.raw), Again(claim, delivery.raw, b"", 0, 0)]) == [False, False]
    broker.give_back([claim], vanished=True)
    assert broker.envelope(claim) == b""
    assert laravel.rows() == [taken]


def test_what_a_dead_worker_of_laravel_held_comes_back(laravel: Laravel, broker: DatabaseBroker) -> None:
    laravel.push(Q, string_job(UUID, "theirs", {}), now_s() - 200)
    laravel.push(Q, string_job(UUID[::-1], "theirs", {}), now_s() - 200)
    dead, alive = laravel.pop(Q, now_s() - 100), laravel.pop(Q, now_s() - 80)
    assert dead is not None
    assert alive is not None
    reclaimed = broker.database.write(lambda connection: broker.claiming.reclaim(connection, Q, 10))
    assert reclaimed == 1
    (delivery,) = broker.reserve(Q, 10)
    assert (delivery.id, envelopes.decode(delivery.raw).attempts, delivery.recoveries) == (UUID, 1, 0)


def test_a_job_that_failed_lies_where_laravel_looks(laravel: Laravel, broker: DatabaseBroker) -> None:
    laravel.push(Q, string_job(UUID, "theirs", {"a": 1}), now_s())
    (delivery,) = broker.reserve(Q, 1)
    failure = Failure(type="ValueError", message="no such order", traceback="Traceback …")
    job = FailedJob(
        id=UUID, connection="jobs", queue=Q, name="theirs", payload=b"", failure=failure, failed_ms=broker.now_ms()
    )
    assert broker.settle([Bury(claim_of(delivery), delivery.raw, delivery.raw, job)]) == [True]
    (row,) = laravel.failed()
    assert (row.uuid, row.connection, row.queue) == (UUID, "database", Q)
    assert row.exception.splitlines()[0] == "ValueError: no such order"
    assert json.loads(row.payload)["data"] == {"a": 1}
    assert laravel.rows() == []
    assert broker.cancel(Q, UUID) is Answer.FAILED


def test_its_jobs_are_found_by_their_uuid(laravel: Laravel, broker: DatabaseBroker) -> None:
    laravel.push(Q, string_job(UUID, "theirs", {"uuid": "x"}), now_s(), delay_s=60)
    found = broker.find(Q, UUID)
    assert found is not None
    assert broker.reschedule(Q, UUID, 0) is Answer.RESCHEDULED
    assert len(broker.reserve(Q, 1)) == 1
    assert broker.cancel(Q, UUID) is Answer.RUNNING
    assert broker.cancel(Q, "nobody") is Answer.UNKNOWN


def test_what_is_no_job_fails_and_blocks_nobody(laravel: Laravel, broker: DatabaseBroker) -> None:
    laravel.push(Q, "rubbish", now_s())
    push(broker, name="ours")
    rubbish, ours = broker.reserve(Q, 2)
    assert rubbish.raw == b"rubbish"
    job = FailedJob(
        id=rubbish.id,
        connection="jobs",
        queue=Q,
        name="",
        payload=b"rubbish",
        failure=Failure(type="BadEnvelope", message="no"),
        failed_ms=broker.now_ms(),
    )
    assert broker.settle([Bury(claim_of(rubbish), rubbish.raw, rubbish.raw, job), Forget(claim_of(ours), b"")]) == [
        True,
        True,
    ]
    assert [row.payload for row in laravel.failed()] == ["rubbish"]
