"""A job dispatched in the application's transaction is there when that commits, and never if it does not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import django
import pytest
from django.conf import settings as django_settings
from django.db import connections, transaction
from sqlalchemy import Engine, create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from delayq import dispatch, dispatch_many
from delayq.contrib.sqlalchemy_commits import SessionCommits
from delayq.core.states import Answer
from delayq.core.views import Fate
from delayq.drivers.database.connection import DatabaseConnection
from delayq.drivers.database.schema import migrate
from delayq.drivers.within import within
from delayq.jobs.current import make_manager, using_manager
from delayq.jobs.dispatch import named
from delayq.jobs.registry import Registry, using
from delayq.manager import Manager
from delayq.settings import Settings
from delayq.settings.tables import ConnectionSettings

Q = "joined"


class Undo(Exception):
    """Rolls a block back."""


def manager_on(url: str) -> Manager:
    manager = make_manager(Settings(queue=Q, connection="jobs"))
    manager.define("jobs", ConnectionSettings(driver="database", place=url))
    connection = manager.connection("jobs")
    assert isinstance(connection, DatabaseConnection)
    migrate(connection.broker.database, connection.broker.tables)
    return manager


@pytest.fixture
def manager(url: str) -> Iterator[Manager]:
    with closing(manager_on(url)) as manager, using_manager(manager), using(Registry()):
        yield manager


@pytest.fixture
def lite_manager(lite: str) -> Iterator[Manager]:
    with closing(manager_on(lite)) as manager, using_manager(manager), using(Registry()):
        yield manager


def ids(manager: Manager) -> list[str]:
    """What a worker would see."""
    connection: Any = manager.connection("jobs")
    return [job.id for job in connection.broker.page(Q, cursor="", count=100).jobs]


def test_with_the_commit_or_not_at_all(manager: Manager, engine: Engine) -> None:
    with Session(engine) as session:
        ref = dispatch("close", {"a": 1}, within=session)
        dispatch("close", within=session, delay="15m")
        assert ref.outcome is Answer.CREATED
        if engine.dialect.name != "sqlite":  # whose one writer is this transaction
            assert ids(manager) == []
        session.commit()
    assert len(ids(manager)) == 2
    with Session(engine) as session:
        dispatch("close", within=session)
        session.rollback()
    with suppress(Undo), engine.begin() as connection, within(connection):
        dispatch_many([named("close"), named("close")])
        raise Undo
    assert len(ids(manager)) == 2


def test_a_savepoint_takes_its_jobs_along(lite_manager: Manager, lite: str) -> None:
    engine = create_engine(lite)
    with Session(engine) as session:
        session.connection()
        kept = dispatch("close", within=session)
        savepoint = session.begin_nested()
        dispatch("close", within=session)
        savepoint.rollback()
        session.commit()
    engine.dispose()
    assert ids(lite_manager) == [kept.id]


def test_an_id_that_is_taken_is_kept_there_too(manager: Manager, engine: Engine) -> None:
    first = dispatch("close", {"n": 1}, id="order-42")
    with Session(engine) as session:
        again = dispatch("close", {"n": 2}, id="order-42", within=session)
        other = dispatch("close", {"n": 3}, id="order-43", within=session)
        session.commit()
    assert (first.outcome, again.outcome, other.outcome) == (Answer.CREATED, Answer.KEPT, Answer.CREATED)


def test_at_once_when_it_says_so(manager: Manager, engine: Engine) -> None:
    with Session(engine) as session, within(session):
        ref = dispatch("close", after_commit=False)
        assert ids(manager) == [ref.id]
        session.rollback()
    assert ids(manager) == [ref.id]


def test_the_session_of_another_database_is_waited_for(lite_manager: Manager, tmp_path: Path) -> None:
    lite_manager.on_commit(SessionCommits())
    engine = create_engine(f"sqlite:///{tmp_path / 'shop.db'}")
    with Session(engine) as session:
        ref = dispatch("close", within=session)
        assert (ref.outcome, ids(lite_manager)) == (Fate.AFTER_COMMIT, [])
        session.commit()
    engine.dispose()
    assert ids(lite_manager) == [ref.id]


async def test_a_session_for_asyncio(lite_manager: Manager, lite: str) -> None:
    engine = create_async_engine(lite.replace("sqlite:", "sqlite+aiosqlite:"))
    async with AsyncSession(engine) as session:
        kept = await named("close").within(session).adispatch()
        await session.commit()
        await named("close").within(session).adispatch()
        await session.rollback()
    await engine.dispose()
    assert ids(lite_manager) == [kept.id]


@pytest.fixture
def django_on(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """Lets Django's default alias lead to a file. Its settings are the process's, and other tests have theirs there."""
    if not django_settings.configured:
        folder, kind = tmp_path_factory.mktemp("django"), {"ENGINE": "django.db.backends.sqlite3"}
        files = {name: {**kind, "NAME": str(folder / name)} for name in ("default", "archive")}
        django_settings.configure(DATABASES=files)
        django.setup()

    def lead(file: str) -> Any:
        connection = connections["default"]
        connection.close()
        monkeypatch.setattr(connection, "settings_dict", {**connection.settings_dict, "NAME": file})
        return connection

    return lead


def test_a_transaction_of_django(lite_manager: Manager, lite: str, django_on: Callable[[str], Any]) -> None:
    connection = django_on(lite.removeprefix("sqlite:///"))
    with transaction.atomic():
        kept = dispatch("close", {"é": 1}, within="default", id="order-1")
        again = dispatch("close", within="default", id="order-1")
    with suppress(Undo), transaction.atomic():
        dispatch("close", within="default")
        raise Undo
    connection.close()
    assert (ids(lite_manager), again.outcome) == ([kept.id], Answer.KEPT)
