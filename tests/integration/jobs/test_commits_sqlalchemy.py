"""Jobs that wait for the commit of an SQLAlchemy session, on a real server."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from delayq import Fate, JobRef, dispatch, dispatch_many, job, listener, within
from delayq.contrib.sqlalchemy_commits import SessionCommits
from delayq.core.errors import BackendUnavailable, CommittedUnsent, ConfigError, InvalidInput, InvalidPayload
from delayq.core.events import JobDispatched, JobRolledBack, JobUnsent
from delayq.jobs.dispatch import named
from delayq.manager import Manager
from delayq.redis.client import Client
from tests.support.station import Station


@pytest.fixture(autouse=True)
def hook(manager: Manager) -> None:
    manager.on_commit(SessionCommits())


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = create_engine("sqlite://")
    yield engine
    engine.dispose()


@pytest.fixture
def session(engine: Engine) -> Iterator[Session]:
    with Session(engine) as session:
        yield session


def jobs(station: Station, queue: str = "orders") -> set[str]:
    return {info.id for info in station.client.list_jobs(queue=queue, state="ready").jobs}


def fates(refs: list[JobRef]) -> list[str]:
    return [str(ref.latest.outcome) for ref in refs]


def test_the_job_is_sent_by_the_commit(station: Station, session: Session) -> None:
    session.execute(text("select 1"))
    ref = dispatch("close", within=session, id="o-1")
    assert (ref.id, ref.queue, ref.outcome) == ("o-1", "orders", Fate.AFTER_COMMIT)
    assert ref.latest is ref
    assert jobs(station) == set()
    session.commit()
    assert jobs(station) == {"o-1"}
    assert (ref.outcome, ref.latest.outcome, ref.latest.state) == (Fate.AFTER_COMMIT, "created", "ready")


def test_an_id_is_made_at_the_dispatch(station: Station, session: Session) -> None:
    ref = dispatch("close", within=session)
    session.commit()
    assert jobs(station) == {ref.id}


def test_a_named_session_is_begun(station: Station, engine: Engine) -> None:
    with Session(engine) as session:
        ref = dispatch("close", within=session)
        assert session.in_transaction()
    assert fates([ref]) == ["rolled back"]
    with Session(engine, autobegin=False) as session:
        assert dispatch("close", within=session).outcome == "created"


def test_a_rollback_drops_the_job_and_is_heard_of(station: Station, session: Session) -> None:
    heard: list[Any] = []
    listener(JobRolledBack)(heard.append)
    ref = dispatch("close", within=session)
    session.rollback()
    assert fates([ref]) == [Fate.ROLLED_BACK]
    assert heard == [JobRolledBack(ref.id, "close", "orders")]
    session.commit()
    assert jobs(station) == set()


def test_a_unique_key_is_taken_at_the_commit(station: Station, session: Session) -> None:
    waiting = dispatch("close", within=session, unique="k", id="one")
    assert dispatch("close", unique="k", id="two").outcome == "created"
    session.rollback()
    assert fates([waiting]) == [Fate.ROLLED_BACK]
    late = dispatch("close", within=session, unique="k", id="three")
    session.commit()
    assert (late.latest.outcome, late.latest.id, jobs(station)) == ("kept", "two", {"two"})


def test_savepoints(station: Station, session: Session) -> None:
    """Released ones wait for the outer commit, rolled back ones are dropped; the order is that of the dispatches."""
    heard: list[str] = []
    listener(JobDispatched)(lambda event: heard.append(event.id))
    with session.begin():
        dispatch("close", within=session, id="1")
        with session.begin_nested():
            dispatch("close", within=session, id="2")
            with session.begin_nested():
                dispatch("close", within=session, id="3")
        savepoint = session.begin_nested()
        dropped = dispatch("close", within=session, id="4")
        with session.begin_nested():
            deeper = dispatch("close", within=session, id="5")
        savepoint.rollback()
        dispatch("close", within=session, id="6")
        assert jobs(station) == set()
        assert fates([dropped, deeper]) == ["rolled back"] * 2
    assert heard == ["1", "2", "3", "6"]
    assert jobs(station) == set(heard)


def test_a_released_savepoint_is_dropped_with_the_transaction(station: Station, session: Session) -> None:
    with session.begin_nested():
        ref = dispatch("close", within=session)
    session.rollback()
    assert fates([ref]) == ["rolled back"]
    assert jobs(station) == set()


def test_a_session_forgotten_in_its_transaction_drops_the_job(station: Station, engine: Engine) -> None:
    session = Session(engine)
    ref = dispatch("close", within=session)
    del session
    gc.collect()
    assert fates([ref]) == ["rolled back"]


def test_one_call_for_each_queue(
    station: Station, session: Session, manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[str, int]] = []
    real = Client.run

    def run(client: Client, flow: Any) -> Any:
        calls.append((flow.__name__, 1))
        return real(client, flow)

    monkeypatch.setattr(Client, "run", run)
    refs = [dispatch("close", within=session, queue=queue) for queue in ("a", "b", "a", "b", "a")]
    refs += dispatch_many([named("close", n).on_queue("a").within(session) for n in range(3)])
    session.commit()
    assert calls == [("schedule_many", 1)]
    assert fates(refs) == ["created"] * 8
    assert (len(jobs(station, "a")), len(jobs(station, "b"))) == (6, 2)


def test_many_at_once_wait_or_go_each_by_itself(station: Station, session: Session) -> None:
    refs = dispatch_many([named("close").within(session), named("close")])
    assert [ref.outcome for ref in refs] == [Fate.AFTER_COMMIT, "created"]
    session.commit()
    assert jobs(station) == {ref.id for ref in refs}


def test_a_block_around_the_dispatches(station: Station, session: Session) -> None:
    with within(session):
        waits = dispatch("close")
        at_once = dispatch("close", after_commit=False)
    assert [waits.outcome, at_once.outcome] == [Fate.AFTER_COMMIT, "created"]
    assert dispatch("close").outcome == "created"
    session.commit()
    assert jobs(station) >= {waits.id, at_once.id}


def test_the_current_session(station: Station, engine: Engine, manager: Manager) -> None:
    """A scoped one is asked when a job says that it waits; without a transaction open it goes at once."""
    scoped = scoped_session(sessionmaker(engine))
    manager.on_commit(SessionCommits(scoped))
    assert dispatch("close", after_commit=True).outcome == "created"
    scoped.execute(text("select 1"))
    assert dispatch("close").outcome == "created"
    waits = dispatch("close", after_commit=True)
    assert waits.outcome is Fate.AFTER_COMMIT
    scoped.commit()
    assert fates([waits]) == ["created"]
    assert dispatch("close", within=scoped).outcome is Fate.AFTER_COMMIT
    scoped.remove()


def test_class_and_dispatch_say_which_counts(station: Station, session: Session) -> None:
    close = job("declared", after_commit=True)(lambda: None)
    hasty = job("hasty", after_commit=False)(lambda: None)
    with within(session):
        assert close.job().dispatch().outcome is Fate.AFTER_COMMIT
        assert hasty.job().dispatch().outcome == "created"
        assert hasty.job().within(session).dispatch().outcome is Fate.AFTER_COMMIT
    assert close.job().dispatch().outcome == "created"  # no session is known, so none is open
    with pytest.raises(InvalidInput, match="Drop one of them"):
        dispatch("close", within=session, after_commit=False)


def test_what_is_wrong_is_found_at_the_dispatch(station: Station, session: Session) -> None:
    with pytest.raises(InvalidPayload):
        dispatch("close", "x" * 300_000, within=session)
    with pytest.raises(ConfigError, match="no connection 'nowhere'"):
        dispatch("close", within=session, connection="nowhere")
    with pytest.raises(ConfigError, match="no session"):
        dispatch("close", within=object())
    session.commit()
    assert jobs(station) == set()


def test_a_send_that_fails_reaches_who_committed(
    station: Station, session: Session, manager: Manager, caplog: pytest.LogCaptureFixture
) -> None:
    """The other connection's job goes; the session may be used again; the job is not sent by the next commit."""
    heard: list[Any] = []
    listener(JobUnsent)(heard.append)
    lost = dispatch("close", within=session)
    other = dispatch("close", within=session, connection="null")
    broken = BackendUnavailable("It is away.")

    def away(specs: object, on_conflict: object) -> list[JobRef]:
        raise broken

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manager.connection(), "schedule_many", away)
        with pytest.raises(CommittedUnsent, match="a job that waited") as caught:
            session.commit()
    assert caught.value.refs == (lost,)
    assert caught.value.__cause__ is broken
    assert fates([lost, other]) == ["not sent", "dropped"]
    assert [(event.id, event.error) for event in heard] == [(lost.id, broken)]
    assert f"committed, and not sent: close {lost.id}: It is away." in caplog.text
    session.execute(text("select 1"))
    session.commit()
    assert jobs(station) == set()


def test_a_refusal_reaches_who_committed(station: Station, session: Session) -> None:
    dispatch("close", id="o-1")
    ref = dispatch("close", within=session, id="o-1", on_conflict="error")
    with pytest.raises(CommittedUnsent, match="refused in queue 'orders': conflict"):
        session.commit()
    assert fates([ref]) == ["conflict"]


def test_sync_jobs_run_after_the_commit_each_by_itself(session: Session) -> None:
    ran: list[str] = []

    @job("fails")
    def fails() -> None:
        raise ValueError("no")

    job("runs")(lambda: ran.append("it"))
    refs = [dispatch(name, connection="sync", within=session) for name in ("fails", "runs")]
    assert ran == []
    with pytest.raises(CommittedUnsent, match="no"):
        session.commit()
    assert ran == ["it"]
    assert fates(refs) == ["not sent", "done"]


async def test_an_async_session(station: Station, manager: Manager) -> None:
    engine = create_async_engine("sqlite+aiosqlite://")
    async with AsyncSession(engine) as session, session.begin():
        await session.execute(text("select 1"))
        first = await named("close").within(session).adispatch()
        second = dispatch("close", within=session)
        assert jobs(station) == set()
    assert fates([first, second]) == ["created"] * 2
    scoped = async_scoped_session(async_sessionmaker(engine), asyncio.current_task)
    third = await named("close").within(scoped).adispatch()
    await scoped.commit()
    assert fates([third]) == ["created"]
    await scoped.remove()
    async with AsyncSession(engine) as session:
        dropped = await named("close").within(session).adispatch()
    assert fates([dropped]) == ["rolled back"]
    assert jobs(station) == {first.id, second.id, third.id}
    await manager.aclose()
    await engine.dispose()


async def test_an_async_session_whose_jobs_cannot_be_sent(station: Station, manager: Manager) -> None:
    engine = create_async_engine("sqlite+aiosqlite://")

    async def away(specs: object, on_conflict: object) -> list[JobRef]:
        raise BackendUnavailable("It is away.")

    async with AsyncSession(engine) as session:
        ref = await named("close").within(session).adispatch()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(manager.connection(), "aschedule_many", away)
            with pytest.raises(CommittedUnsent):
                await session.commit()
        assert fates([ref]) == ["not sent"]
        assert (await session.execute(text("select 7"))).scalar() == 7
    await engine.dispose()


def test_plain_sessions_need_no_greenlet(tmp_path: Path) -> None:
    """It is no part of the extra `database`; SQLAlchemy needs it for asyncio alone."""
    program = """
        import sys
        sys.modules["greenlet"] = None
        from sqlalchemy import create_engine
        from sqlalchemy.orm import Session
        from delayq import Settings, dispatch, make_manager, set_manager
        from delayq.contrib.sqlalchemy_commits import SessionCommits
        set_manager(make_manager(Settings(connection="null")))
        from delayq import current_manager
        current_manager().on_commit(SessionCommits())
        with Session(create_engine("sqlite://")) as session:
            ref = dispatch("close", within=session)
            session.commit()
            print(ref.latest.outcome)
            import delayq.contrib.outbox.relay, delayq.drivers.outbox.sqlalchemy_writer
    """
    words = [sys.executable, "-c", textwrap.dedent(program)]
    env = {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("dropped\n", "")
