"""Jobs that wait for the commit of a transaction of SQLAlchemy."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, scoped_session, sessionmaker

import delayq.redis.session
from delayq import (
    BackendUnavailable,
    BatchInfo,
    CommittedUnsent,
    DelayQ,
    InvalidInput,
    Job,
    JobRef,
    JobSpec,
    Manager,
    Unique,
    adispatch,
    batch,
    chain,
    dispatch,
    dispatch_many,
    within,
)
from delayq.core.exit_codes import ExitCode
from delayq.jobs import transactions

LATER = "1h"


class Base(DeclarativeBase): ...


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)


class Close(Job, name="commits.close", delay=LATER):
    order_id: int = 42

    def handle(self) -> None: ...


class Paid(Job, name="commits.paid", delay=LATER, after_commit=True):
    def handle(self) -> None: ...


class Eager(Job, name="commits.eager", delay=LATER, after_commit=False):
    def handle(self) -> None: ...


@pytest.fixture(autouse=True)
def without_django(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests of this process may have configured Django."""
    monkeypatch.setattr(transactions, "uses_django", lambda: False)


@pytest.fixture
def engine() -> Iterator[sa.Engine]:
    engine = sa.create_engine("sqlite://", poolclass=sa.StaticPool)

    @sa.event.listens_for(engine, "connect")
    def no_driver_transactions(connection: Any, _: object) -> None:
        connection.isolation_level = None

    @sa.event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        connection.exec_driver_sql("BEGIN")

    Base.metadata.create_all(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def session(engine: sa.Engine) -> Iterator[Session]:
    with Session(engine) as session:
        yield session


def names(sent: DelayQ) -> list[str]:
    return [job.name for job in sent.iter_jobs("scheduled")]


def test_a_job_is_sent_right_after_the_commit(sent: DelayQ, session: Session) -> None:
    session.add(Order(id=1))
    ref = Close().dispatch(within=session)
    assert (ref.outcome, ref.state, ref.name, ref.due_ms) == ("after commit", "absent", "commits.close", None)
    assert names(sent) == []
    session.commit()
    assert [job.id for job in sent.iter_jobs("scheduled")] == [ref.id]
    assert ref.cancel() == "cancelled"


def test_the_ids_of_the_caller_and_the_conflict_rule_are_kept(sent: DelayQ, session: Session) -> None:
    Close(order_id=1).dispatch(id="order-1")
    assert Close(order_id=2).dispatch(id="order-1", on_conflict="replace", within=session).id == "order-1"
    session.commit()
    info = sent.get("order-1")
    assert info is not None and info.data == {"order_id": 2}


@pytest.mark.parametrize("end", ["rollback", "close"])
def test_a_rollback_sends_nothing(sent: DelayQ, session: Session, end: str) -> None:
    Close().dispatch(within=session)
    getattr(session, end)()
    session.add(Order(id=2))
    session.commit()
    assert names(sent) == []


def test_a_savepoint_that_is_rolled_back_sends_nothing(sent: DelayQ, session: Session) -> None:
    Close(order_id=1).dispatch(within=session)
    with session.begin_nested():
        Close(order_id=2).dispatch(within=session)
        with session.begin_nested() as inner:
            Close(order_id=3).dispatch(within=session)
            session.add(Order(id=3))
            session.flush()
            inner.rollback()
    assert names(sent) == []
    session.commit()
    assert sorted(job.data["order_id"] for job in sent.iter_jobs("scheduled")) == [1, 2]


@pytest.mark.parametrize("mode", ["conditional_savepoint", "create_savepoint", "rollback_only", "control_fully"])
def test_a_session_in_a_transaction_of_its_connection_sends_at_its_own_commit(
    sent: DelayQ, engine: sa.Engine, mode: Any
) -> None:
    with engine.connect() as connection:
        outer = connection.begin()
        with Session(bind=connection, join_transaction_mode=mode) as session:
            session.add(Order(id=1))
            Close(order_id=1).dispatch(within=session)
            with session.begin_nested() as savepoint:
                Close(order_id=2).dispatch(within=session)
                savepoint.rollback()
            with session.begin_nested():
                Close(order_id=3).dispatch(within=session)
            assert names(sent) == []
            session.commit()
            assert sorted(job.data["order_id"] for job in sent.iter_jobs("scheduled")) == [1, 3]
            Close(order_id=4).dispatch(within=session)
            session.rollback()
        if outer.is_active:
            outer.rollback()
    assert len(names(sent)) == 2


def test_an_async_session_in_a_transaction_of_its_connection_sends_at_its_own_commit(sent: DelayQ) -> None:
    async def run() -> None:
        engine = create_async_engine("sqlite+aiosqlite://", poolclass=sa.StaticPool)
        async with engine.connect() as connection:
            outer = await connection.begin()
            async with AsyncSession(bind=connection, join_transaction_mode="create_savepoint") as session:
                await session.execute(sa.text("SELECT 1"))
                ref = await Close().adispatch(within=session)
                async with session.begin_nested() as savepoint:
                    await Close().adispatch(within=session)
                    await savepoint.rollback()
                assert names(sent) == []
                await session.commit()
                assert len(names(sent)) == 1
            await outer.rollback()
        await engine.dispose()
        await ref.client.close()

    asyncio.run(run())
    assert len(names(sent)) == 1


def test_a_session_may_be_used_again(sent: DelayQ, session: Session) -> None:
    for number in (1, 2):
        with session.begin():
            Close(order_id=number).dispatch(within=session)
    session.commit()
    assert sorted(job.data["order_id"] for job in sent.iter_jobs("scheduled")) == [1, 2]


def test_the_jobs_of_a_transaction_travel_together(
    sent: DelayQ, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    Close().dispatch(within=session)
    dispatch_many([Close(order_id=n) for n in range(3)] + [Close(order_id=9).within(session)], spread=None)
    calls = []
    write = delayq.redis.session.Session.write

    async def counting(self: Any, *args: Any, **kwargs: Any) -> Any:
        calls.append(args)
        return await write(self, *args, **kwargs)

    monkeypatch.setattr(delayq.redis.session.Session, "write", counting)
    session.commit()
    assert len(calls) == 1
    assert len(names(sent)) == 5


def test_a_block_lets_all_jobs_wait(sent: DelayQ, session: Session) -> None:
    with within(session):
        refs = [Close().dispatch(), dispatch("commits.other", delay=LATER), Paid().dispatch(), Eager().dispatch()]
        now = Close().dispatch(after_commit=False)
    assert [ref.outcome for ref in refs] == ["after commit", "after commit", "after commit", "created"]
    assert now.outcome == "created"
    assert Close().dispatch().outcome == "created"
    assert len(names(sent)) == 3
    session.commit()
    assert len(names(sent)) == 6


def test_a_declared_job_needs_a_session(sent: DelayQ, session: Session) -> None:
    with pytest.raises(InvalidInput, match=r"'commits\.paid' waits for a commit, but no session is named") as raised:
        Paid().dispatch()
    assert raised.value.field == "after_commit" and raised.value.exit_code == ExitCode.WRONG_USE
    assert Paid().dispatch(after_commit=False).outcome == "created"
    assert Paid().within(session).dispatch().outcome == "after commit"
    assert Paid().dispatch_sync().error is None


def test_a_connection_lets_its_jobs_wait(manager: Manager, sent: DelayQ, session: Session) -> None:
    manager.define("orders", after_commit=True)
    with pytest.raises(InvalidInput, match="no session is named"):
        Close().dispatch(connection="orders")
    with within(session):
        assert Close().dispatch(connection="orders").outcome == "after commit"
        assert Close().on_connection("orders").dispatch(after_commit=False).outcome == "created"
    session.commit()
    assert len(names(sent)) == 2


def test_scoped_sessions(sent: DelayQ, engine: sa.Engine) -> None:
    scoped = scoped_session(sessionmaker(engine))
    Close().dispatch(within=scoped)
    scoped.commit()
    Close().dispatch(within=scoped)
    scoped.remove()
    assert len(names(sent)) == 1


def test_async_sessions_send_in_the_event_loop(sent: DelayQ) -> None:
    async def run() -> None:
        engine = create_async_engine("sqlite+aiosqlite://")
        async with AsyncSession(engine) as session:
            ref = await Close().adispatch(within=session)
            assert ref.outcome == "after commit"
            await adispatch("commits.other", delay=LATER, within=session)
            assert names(sent) == []
            await session.commit()
            assert len(names(sent)) == 2
            assert (info := await ref.refresh()) is not None and info.state == "scheduled"
            await Close().adispatch(within=session)
            await session.rollback()
        scoped = async_scoped_session(async_sessionmaker(engine), scopefunc=asyncio.current_task)
        await chain(Close(), Close()).within(scoped).adispatch()
        await batch([Close()]).within(scoped).adispatch()
        await scoped.commit()
        await scoped.remove()
        await engine.dispose()
        await ref.client.close()

    asyncio.run(run())
    assert len(names(sent)) == 4


def test_chains_and_batches_wait(sent: DelayQ, session: Session) -> None:
    first = chain(Close(order_id=1), Close(order_id=2)).within(session).dispatch()
    assert isinstance(first, JobRef) and first.outcome == "after commit"
    whole = batch([Close(), Close()], id="imports", name="import").within(session).dispatch()
    assert (whole.id, whole.outcome, whole.pending, whole.state) == ("imports", "after commit", 2, "running")
    with within(session):
        of_batch = chain(batch([Close()]), Close()).dispatch()
        assert isinstance(of_batch, BatchInfo) and of_batch.outcome == "after commit"
        declared = chain(Close(), Paid()).after_commit().dispatch()
    assert declared.outcome == "after commit"
    assert names(sent) == [] and sent.batches.get("imports") is None
    session.commit()
    assert len(names(sent)) == 5
    assert (found := sent.batches.get("imports")) is not None and found.total == 2
    assert sent.batches.get(of_batch.id) is not None
    assert (info := sent.get(first.id)) is not None and info.name == "commits.close"


def test_a_chain_waits_if_one_of_its_jobs_declares_it(sent: DelayQ, session: Session) -> None:
    with pytest.raises(InvalidInput, match="The chain waits for a commit, but no session is named"):
        chain(Close(), Paid()).dispatch()
    with pytest.raises(InvalidInput, match="The batch waits for a commit, but no session is named"):
        batch([Close()], then=Paid()).dispatch()
    with pytest.raises(InvalidInput, match=r"'commits\.close' is part of a chain or batch, and has after_commit= or"):
        chain(Close().within(session)).dispatch()


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"within": object()}, "and not a session"),
        ({"within": "default"}, "within is 'default', and not a session"),
        ({"after_commit": "yes"}, "after_commit is 'yes'"),
    ],
)
def test_wrong_words_are_refused(sent: DelayQ, said: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=words) as raised:
        Close().dispatch(**said)
    assert raised.value.field in ("within", "after_commit") and raised.value.hint
    assert names(sent) == []


def test_a_session_and_no_waiting_contradict(sent: DelayQ, session: Session) -> None:
    with pytest.raises(InvalidInput, match="has within= and after_commit=False"):
        Close().dispatch(within=session, after_commit=False)
    with pytest.raises(InvalidInput, match="not a session"), within(object()):
        pass
    with Session(autobegin=False) as bare, pytest.raises(InvalidInput, match="autobegin=False, and no transaction"):
        Close().dispatch(within=bare)


def test_mistakes_are_found_before_the_commit(sent: DelayQ, session: Session) -> None:
    with pytest.raises(InvalidInput, match="delay"):
        Close().dispatch(delay="soon", within=session)
    session.commit()
    assert names(sent) == []


def test_a_unique_job_of_a_sharded_queue_waits(sent: DelayQ, session: Session) -> None:
    sent.queue_set("commits", shards=4)
    ref = Close().dispatch(within=session, queue="commits", unique=Unique(key=["order_id"]))
    session.commit()
    (job,) = sent.iter_jobs("scheduled", queue="commits")
    assert job.id
    assert ref.outcome == "after commit"


def test_jobs_that_cannot_be_sent_are_named(
    sent: DelayQ, session: Session, engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.add(Order(id=7))
    ref = Close().dispatch(within=session)
    also = chain(Paid(), Close()).within(session).dispatch()
    batch([Close()], id="imports", name="import").within(session).dispatch()
    Close().dispatch(within=session, queue="other")

    monkeypatch.setattr(DelayQ, "send_prepared", lambda *args, **kwargs: _raise(BackendUnavailable("Redis is away.")))
    monkeypatch.setattr(DelayQ, "send_chain", lambda *args, **kwargs: _raise(BackendUnavailable("Redis is away.")))
    with pytest.raises(
        CommittedUnsent, match=r"the dispatch of 3 jobs failed: commits\.close .*Redis is away"
    ) as raised:
        session.commit()
    assert isinstance(raised.value.__cause__, BackendUnavailable)
    assert raised.value.jobs[0] == ("commits.close", ref.id)
    assert ("commits.paid", also.id) in raised.value.jobs
    assert sent.batches.get("imports") is not None  # all others are sent all the same
    with Session(engine) as other:
        assert other.get(Order, 7) is not None
    session.add(Order(id=8))  # the session can be used again
    session.commit()


def _raise(error: Exception) -> None:
    raise error


def test_prepared_jobs_are_those_of_schedule_many(sent: DelayQ) -> None:
    (job,) = sent.prepare_many([JobSpec("commits.close", id="one", delay="1h")])
    assert sent.get("one") is None
    (ref,) = sent.send_prepared([job])
    assert (ref.id, ref.outcome) == ("one", "created")
