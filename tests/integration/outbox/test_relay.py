"""What is written to an outbox becomes a job if and only if its transaction is committed; on both databases."""

from __future__ import annotations

import logging
import threading
from contextlib import closing
from typing import Any

import pytest
from sqlalchemy import Engine, insert, select, update
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from delayq import Fate, dispatch, dispatch_many, within
from delayq.contrib.outbox.relay import OutboxRelay
from delayq.core.errors import BackendError, BackendUnavailable, ConfigError
from delayq.core.states import State
from delayq.drivers.outbox.table import now_ms
from delayq.jobs.dispatch import named
from delayq.manager import Manager
from delayq.settings.tables import ConnectionSettings
from tests.support.outbox import TABLE, drained, rows
from tests.support.station import Station


def ids(station: Station, state: str = "ready", queue: str = "orders") -> list[str]:
    return [info.id for info in station.client.list_jobs(queue=queue, state=state).jobs]


def test_only_a_committed_row_becomes_a_job(station: Station, manager: Manager, engine: Engine, database: str) -> None:
    with Session(engine) as session:
        ref = dispatch("close", {"order_id": 1}, within=session, id="o-1", tags=["a"], tries=7)
        assert (ref.outcome, ref.id, ref.queue, ref.state) == (Fate.OUTBOX, "o-1", "orders", State.ABSENT)
        session.commit()
        dispatch("close", within=session, id="o-2")
        session.rollback()
    assert station.client.queues() == []
    assert drained(database, manager) == 1
    assert ids(station) == ["o-1"]
    found = station.job("o-1")
    assert found.envelope is not None
    assert (found.data, found.envelope.tags, found.envelope.tries) == ({"order_id": 1}, ["a"], 7)
    assert rows(engine) == []
    assert drained(database, manager) == 0


def test_the_order_within_a_queue_is_that_of_the_rows(
    station: Station, manager: Manager, engine: Engine, database: str
) -> None:
    """600 rows take three batches of each queue; others between them do not matter."""
    with Session(engine) as session, within(session):
        for n in range(600):
            dispatch("close", n, id=f"{n:03}", queue=("a", "b")[n % 2], on_conflict=("keep", "error")[n // 100 % 2])
        session.commit()
    assert drained(database, manager) == 600
    redis: Any = station.connector.commands()
    entries = [fields[b"id"].decode() for _, fields in redis.xrange(station.keys("a").stream)]
    assert entries == [f"{n:03}" for n in range(0, 600, 2)]


def test_a_delay_counts_from_the_writing(station: Station, manager: Manager, engine: Engine, database: str) -> None:
    """As the database noted it: a relay that comes an hour later adds nothing. A time stays what it is."""
    with Session(engine) as session, within(session):
        dispatch("close", id="late", delay="30m")
        dispatch("close", id="soon", delay="2h")
        dispatch("close", id="then", at="2030-01-01T00:00:00Z")
        session.execute(update(TABLE).values(written_ms=TABLE.c.written_ms - 3_600_000))
        before = session.execute(select(now_ms())).scalar_one()
        session.commit()
    drained(database, manager)
    after = station.client.get("late", queue="orders")
    assert after is not None
    assert after.state is State.READY
    due_ms = station.job("soon").due_ms
    assert due_ms is not None
    assert before + 3_500_000 < due_ms <= before + 3_700_000
    assert station.job("then").due_ms == 1_893_456_000_000


def test_limits_count_from_when_the_job_is_due(
    station: Station, manager: Manager, engine: Engine, database: str
) -> None:
    with Session(engine) as session:
        dispatch("close", id="o-1", delay="1h", deadline="10m", within=session)
        [row] = session.execute(select(TABLE)).all()
        session.commit()
    drained(database, manager)
    found = station.job("o-1").envelope
    assert found is not None
    assert found.deadline_ms is not None
    assert abs(found.deadline_ms - row.written_ms - 70 * 60_000) < 60_000


def test_many_and_raw_and_savepoints(station: Station, manager: Manager, engine: Engine, database: str) -> None:
    with Session(engine) as session, within(session):
        refs = dispatch_many([named("close", n) for n in range(3)])
        assert [ref.outcome for ref in refs] == [Fate.OUTBOX] * 3
        savepoint = session.begin_nested()
        dispatch("close", id="dropped")
        savepoint.rollback()
        with session.begin_nested():
            dispatch("close", id="kept")
        session.commit()
    assert drained(database, manager) == 4
    assert set(ids(station)) == {"kept", *(ref.id for ref in refs)}


async def test_an_async_session(station: Station, manager: Manager, tmp_path: Any) -> None:
    path = tmp_path / "async.db"
    engine = create_async_engine(f"sqlite+aiosqlite:///{path}")
    async with engine.begin() as connection:
        await connection.run_sync(TABLE.create)
    async with AsyncSession(engine) as session:
        await named("close").within(session).adispatch(id="o-1", deadline="1h")
        with pytest.raises(ConfigError, match="Use adispatch"):
            dispatch("close", within=session)
        await session.commit()
    await engine.dispose()
    assert drained(f"sqlite+aiosqlite:///{path}", manager) == 1  # an application's own URL will do
    assert ids(station) == ["o-1"]


def test_a_session_must_be_known(station: Station, manager: Manager) -> None:
    with pytest.raises(ConfigError, match="no database session is known"):
        dispatch("close")
    with pytest.raises(ConfigError, match="nothing an outbox can write in"):
        dispatch("close", within=object())


def write(session: Session, **values: Any) -> None:
    """A row as somebody else's program might write it."""
    given = {"id": "x", "name": "close", "queue": "orders", "envelope": "{}", **values}
    session.execute(insert(TABLE).values(given))


def test_bad_rows_are_set_aside_and_block_nobody(
    station: Station, manager: Manager, engine: Engine, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    good = '{"v":1,"id":"%s","name":"close","queue":"orders","data":%s,"attempts":0,"created_ms":1}'
    with Session(engine) as session:
        write(session, envelope="rubbish")
        write(session, id="large", envelope=good % ("large", f'"{"x" * 300_000}"'))
        write(session, id="a", envelope=good % ("b", 1))
        write(session, id="nowhere", envelope=good % ("nowhere", 1), connection="nowhere")
        write(session, id="null", envelope=good % ("null", 1), connection="null")
        write(session, id="past", envelope=good % ("past", 1), delay_ms=-1)
        write(session, id="word", envelope=good % ("word", 1), on_conflict="perhaps")
        write(session, id="spaces", envelope=good % ("spaces", 1), queue="a b")
        write(session, id="good", envelope=good % ("good", 1))
        session.commit()
    with closing(OutboxRelay(database, manager)) as relay:
        assert relay.drain() == 1
        reasons = {row.id: row.refused for row in relay.store.refused(100)}
        assert ids(station) == ["good"]
        assert set(reasons) == {"x", "large", "a", "nowhere", "null", "past", "word", "spaces"}
        assert "no connection 'nowhere'" in reasons["nowhere"]
        assert "leads to no Redis" in reasons["null"]
        assert "The row is called close a, its envelope close b." in reasons["a"]
        assert (relay.lag().waiting, relay.lag().refused) == (0, 8)
        assert "close nowhere was set aside" in caplog.text
        with Session(engine) as session:
            session.execute(update(TABLE).where(TABLE.c.id == "nowhere").values(connection="default"))
            session.commit()
        [number] = [row.seq for row in relay.store.refused(100) if row.id == "nowhere"]
        assert (relay.store.retry([number]), relay.store.retry([number])) == (1, 0)
        assert relay.drain() == 1
        assert relay.store.forget(None) == 7
    assert set(ids(station)) == {"good", "nowhere"}


def test_what_redis_refuses_is_set_aside(station: Station, manager: Manager, engine: Engine, database: str) -> None:
    station.client.schedule("close", id="o-1", delay="1h")
    with Session(engine) as session, within(session):
        dispatch("close", id="o-1", on_conflict="error")
        dispatch("close", id="o-1", on_conflict="replace", delay="2h")
        dispatch("close", id="o-2", on_conflict="error")
        session.commit()
    with closing(OutboxRelay(database, manager)) as relay:
        assert relay.drain() == 2
        assert [row.refused for row in relay.store.refused(9)] == ["The job 'o-1' in queue 'orders' exists."]
    assert ids(station) == ["o-2"]


def test_a_batch_that_is_sent_again_makes_no_second_job(
    station: Station, manager: Manager, engine: Engine, database: str
) -> None:
    """Not even when the first one is done and forgotten: the answer was lost, or the relay died before the delete."""
    with Session(engine) as session:
        dispatch("close", within=session)
        session.commit()
    with closing(OutboxRelay(database, manager)) as relay, pytest.MonkeyPatch.context() as patch:
        real = OutboxRelay._send

        def lost(relay: OutboxRelay, batch: Any) -> Any:
            real(relay, batch)
            raise BackendUnavailable("The answer was lost.")

        patch.setattr(OutboxRelay, "_send", lost)
        with pytest.raises(BackendError, match="could not be sent to orders over default"):
            relay.drain()
        assert len(rows(engine)) == 1
        station.handles("close", lambda: None)
        station.drain()
        assert ids(station) == []
    assert drained(database, manager) == 1
    assert ids(station) == []
    assert rows(engine) == []


def test_the_token_goes_soon_after_the_rows(station: Station, manager: Manager, engine: Engine, database: str) -> None:
    with Session(engine) as session:
        dispatch("close", within=session)
        session.commit()
    drained(database, manager)
    redis = station.connector.commands()
    [token] = redis.keys("delayq:{orders}:once:*")
    assert 0 < redis.pttl(token) <= 3_600_000


def test_a_place_that_is_away_keeps_no_other_waiting(
    station: Station, manager: Manager, engine: Engine, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Session(engine) as session, within(session):
        dispatch("close", id="bad", queue="bad")
        dispatch("close", id="good", queue="good")
        session.commit()
    station.connector.commands().set(station.keys("bad").of("jobs"), "damaged")
    with closing(OutboxRelay(database, manager)) as relay:
        with pytest.raises(BackendError, match="could not be sent to bad over default"):
            relay.drain()
        assert ids(station, queue="good") == ["good"]
        assert "queue bad over default" in caplog.text
        assert relay.lag().waiting == 1
    station.connector.commands().delete(station.keys("bad").of("jobs"))
    assert drained(database, manager) == 1
    assert ids(station, queue="bad") == ["bad"]


def test_a_batch_of_last_week_is_a_persons_business(
    station: Station, manager: Manager, engine: Engine, database: str
) -> None:
    with Session(engine) as session:
        dispatch("close", within=session)
        session.commit()
    with closing(OutboxRelay(database, manager)) as relay:
        relay.store.claim(manager.options_of)
        with Session(engine) as session:
            session.execute(update(TABLE).values(claimed_ms=TABLE.c.claimed_ms - 7 * 86_400_000))
            session.commit()
        assert relay.drain() == 0
        assert "It may have been sent 7 days ago" in relay.store.refused(1)[0].refused
        relay.store.retry(None)
        assert relay.drain() == 1


def test_forwards_are_followed_when_the_batch_is_made(
    station: Station, manager: Manager, engine: Engine, database: str
) -> None:
    with Session(engine) as session:
        dispatch("close", within=session, id="o-1")
        session.commit()
    manager.forward("orders", "new")
    drained(database, manager)
    found = station.job("o-1", "new").envelope
    assert found is not None
    assert found.queue == "new"


def test_relays_side_by_side(station: Station, manager: Manager, engine: Engine, database: str) -> None:
    """On PostgreSQL they share the work, on SQLite one stands by; no row is sent twice either way."""
    with Session(engine) as session, within(session):
        dispatch_many([named("close", n).on_queue(f"q{n % 7}") for n in range(2_000)])
        session.commit()
    relays = [OutboxRelay(database, manager, every_s=0.01) for _ in range(3)]
    failures: list[BaseException] = []

    def work(relay: OutboxRelay) -> None:
        try:
            while relay.lag().waiting and not failures:
                relay.sleep(relay.run_once())
        except BaseException as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=work, args=(relay,)) for relay in relays]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert sum(relay.sent for relay in relays) == 2_000
    assert sum(stats.ready for stats in station.client.stats()) == 2_000
    for relay in relays:
        relay.close()


def test_the_lag_is_told(
    station: Station, manager: Manager, engine: Engine, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "delayq.relay")
    with Session(engine) as session:
        dispatch("close", within=session)
        session.execute(update(TABLE).values(written_ms=TABLE.c.written_ms - 60_000))
        session.commit()
    with closing(OutboxRelay(database, manager)) as relay:
        lag = relay.lag()
        assert (lag.waiting, lag.refused) == (1, 0)
        assert 60_000 <= lag.oldest_ms < 120_000
        relay.run_once()
    assert "1 jobs sent so far; 0 wait" in caplog.text


def test_a_database_without_the_table_is_told_what_to_do(station: Station, manager: Manager, tmp_path: Any) -> None:
    with pytest.raises(BackendError, match=r"no such table.*delayq outbox sql"):
        drained(f"sqlite:///{tmp_path}/empty.db", manager)
    with pytest.raises(ConfigError, match="is no URL of a database"):
        drained("rubbish", manager)
    with pytest.raises(ConfigError, match="Name its file"):
        drained("sqlite://", manager)


def test_the_options_of_an_outbox(manager: Manager, station: Station) -> None:
    manager.define("other", ConnectionSettings(driver="outbox", options={"tabel": "x"}))
    with pytest.raises(ConfigError, match=r"tabel = 'x', and its driver is outbox\. Known are to"):
        dispatch("close", connection="other", within=None)
