"""Jobs that wait for the commit of a Django transaction, on a real server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import django
import pytest
from django.conf import settings as django_settings
from django.db import connections, transaction

from delayq import Fate, JobRef, dispatch, dispatch_many, listener
from delayq.contrib.django_commits import DjangoCommits
from delayq.core.errors import BackendUnavailable, CommittedUnsent, ConfigError
from delayq.core.events import JobDispatched, JobRolledBack
from delayq.jobs.current import using_manager
from delayq.jobs.dispatch import named
from delayq.manager import Manager
from tests.support.outbox import drained, manager_of, outbox_on
from tests.support.station import Station


@pytest.fixture(scope="module", autouse=True)
def databases(tmp_path_factory: pytest.TempPathFactory) -> None:
    if not django_settings.configured:
        folder = tmp_path_factory.mktemp("django")
        database = {"ENGINE": "django.db.backends.sqlite3"}
        django_settings.configure(
            DATABASES={name: {**database, "NAME": str(Path(folder) / name)} for name in ("default", "archive")}
        )
        django.setup()


@pytest.fixture(autouse=True)
def hook(manager: Manager) -> Iterator[None]:
    manager.on_commit(DjangoCommits())
    yield
    connections.close_all()


class Undo(Exception):
    """Rolls a block back."""


def ids(station: Station) -> set[str]:
    return {info.id for info in station.client.list_jobs(queue="orders", state="ready").jobs}


def waiting(job_id: str, **said: Any) -> JobRef:
    ref = dispatch("close", id=job_id, after_commit=True, **said)
    assert ref.outcome is Fate.AFTER_COMMIT
    return ref


def test_no_transaction_so_at_once(station: Station) -> None:
    assert dispatch("close", after_commit=True).outcome == "created"
    with transaction.atomic():
        assert dispatch("close").outcome == "created"


def test_the_jobs_of_a_block_go_out_together(station: Station, manager: Manager) -> None:
    real, calls = manager.connection().schedule_many, []

    def schedule_many(specs: Any, on_conflict: Any) -> list[JobRef]:
        calls.append([spec.id for spec in specs])
        return real(specs, on_conflict)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manager.connection(), "schedule_many", schedule_many)
        with transaction.atomic():
            waiting("1")
            with transaction.atomic():
                waiting("2")
            waiting("3")
            assert ids(station) == set()
    assert calls == [["1", "3"], ["2"]]
    assert ids(station) == {"1", "2", "3"}


def test_a_rollback_drops_the_jobs_and_is_heard_of(station: Station) -> None:
    heard: list[str] = []
    listener(JobRolledBack)(lambda event: heard.append(event.id))
    with suppress(Undo), transaction.atomic():
        ref = waiting("1")
        raise Undo
    assert ref.latest.outcome is Fate.ROLLED_BACK
    with transaction.atomic():
        waiting("2")
    assert (heard, ids(station)) == (["1"], {"2"})


def test_savepoints(station: Station) -> None:
    heard: list[str] = []
    listener(JobDispatched)(lambda event: heard.append(event.id))
    with transaction.atomic():
        with transaction.atomic():
            waiting("released")
        with suppress(Undo), transaction.atomic():
            dropped = waiting("dropped")
            with transaction.atomic():
                deeper = waiting("deeper")
            raise Undo
        assert [dropped.latest.outcome, deeper.latest.outcome] == [Fate.ROLLED_BACK] * 2
        waiting("outer")
        assert ids(station) == set()
    assert sorted(heard) == ["outer", "released"]


def test_the_alias_of_another_database(station: Station) -> None:
    with transaction.atomic("archive"):
        assert dispatch("close", after_commit=True).outcome == "created"
        waits = dispatch("close", within="archive")
        assert waits.outcome is Fate.AFTER_COMMIT
    assert waits.latest.outcome == "created"
    with pytest.raises(ConfigError, match="no alias of a Django database; known are default, archive"):
        dispatch("close", within="nowhere")


def test_a_send_that_fails_reaches_who_committed(station: Station, manager: Manager) -> None:
    def away(specs: object, on_conflict: object) -> list[JobRef]:
        raise BackendUnavailable("It is away.")

    def block() -> None:
        with transaction.atomic():
            waiting("1")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manager.connection(), "schedule_many", away)
        with pytest.raises(CommittedUnsent, match="It is away"):
            block()
    block()
    assert ids(station) == {"1"}


def test_an_outbox_is_written_through_the_connection_of_django(station: Station) -> None:
    """A row of the block around it; the relay reads the same database."""
    manager = manager_of(station.url)
    manager.on_commit(DjangoCommits("archive"))
    url = f"sqlite:///{connections['archive'].settings_dict['NAME']}"
    with outbox_on(url), using_manager(manager):
        with transaction.atomic("archive"):
            assert dispatch("close", id="o-1", deadline="1h").outcome is Fate.OUTBOX
        with suppress(Undo), transaction.atomic("archive"):
            dispatch_many([named("close"), named("close").within("archive")])
            raise Undo
        dispatch("close", id="o-2")
        with pytest.raises(ConfigError, match="no alias of a Django database"):
            dispatch("close", within="nowhere")
        assert drained(url, manager) == 2
    assert ids(station) == {"o-1", "o-2"}
    manager.close()
