"""What every store of failed jobs promises, on each that keeps any."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import delete

from delayq.core.errors import BackendError, ConfigError, InvalidInput
from delayq.core.failure import Failure
from delayq.core.options import Options
from delayq.drivers.database.engine import Database
from delayq.drivers.database.failed import DatabaseFailedStore
from delayq.drivers.database.schema import migrate
from delayq.drivers.database.tables import tables
from delayq.drivers.failed.file import FileFailedStore
from delayq.drivers.failed.null import NullFailedStore
from delayq.drivers.failed.redis import AT_ONCE, RedisFailedStore
from delayq.drivers.failed_store import EVERYTHING, FailedJob, FailedQuery, FailedStore
from delayq.redis.connect import Connector

PREFIX = "delayq"


@pytest.fixture(scope="session", params=["file", "redis", "sqlite", "postgresql", "mariadb"])
def place(request: pytest.FixtureRequest) -> tuple[str, str]:
    """A kind of store, and where its server is if it has one of its own; that is started before a test begins."""
    named = {"postgresql": "postgres_url", "mariadb": "mariadb_url"}.get(request.param)
    return request.param, "" if named is None else request.getfixturevalue(named)


@pytest.fixture
def store(place: tuple[str, str], tmp_path: Path, redis_url: str) -> Iterator[FailedStore]:
    kind, url = place
    if kind == "file":
        yield FileFailedStore(tmp_path / "failed")
        return
    if kind != "redis":
        with closing(Database(url or f"sqlite:///{tmp_path / 'jobs.db'}")) as database:
            known = tables(failed="stored_failed_jobs")
            migrate(database, known)
            database.write(lambda connection: connection.execute(delete(known.failed)))
            yield DatabaseFailedStore(database, known.failed)
        return
    connector = Connector(redis_url)
    made = RedisFailedStore(connector, Options(prefix=PREFIX))
    yield made
    made.close()


def failed(job_id: str, failed_ms: int = 1_000, **changes: object) -> FailedJob:
    values: dict[str, object] = {
        "id": job_id,
        "connection": "reports",
        "queue": "orders",
        "name": "order.close",
        "payload": b'{"v":1,"data":{"n":1}}',
        "failure": Failure("ValueError", "no such order", "Traceback …", 900, 3, [Failure("KeyError", "first")]),
        "failed_ms": failed_ms,
        **changes,
    }
    return FailedJob(**values)  # type: ignore[arg-type]


def ids(store: FailedStore, query: FailedQuery = EVERYTHING, count: int = 100) -> list[str]:
    found, cursor = [], ""
    while True:
        page = store.page(query, cursor=cursor, count=count)
        assert len(page.jobs) <= count
        found += [job.id for job in page.jobs]
        cursor = page.cursor
        if not cursor:
            return found


@pytest.mark.parametrize("payload", [b'{"v":1}', "é \U0001f600".encode(), b"\xff\x00\xfe", b""], ids=repr)
def test_what_is_kept_comes_back_whole(store: FailedStore, payload: bytes) -> None:
    job = failed("o/1 ../x".replace(" ", "_"), payload=payload)
    store.add(job)

    assert store.get(job.id) == job
    assert store.page().jobs == (job,)
    assert store.get("o/1") is None


def test_the_oldest_comes_first_and_pages_show_each_once(store: FailedStore) -> None:
    for n, at in enumerate((50, 10, 30, 30, 30, 20, 30)):
        store.add(failed(f"j{n}", at))

    for count in (1, 2, 3, 100):
        shown = ids(store, count=count)
        assert (shown[:2], set(shown[2:6]), shown[6:]) == (["j1", "j5"], {"j2", "j3", "j4", "j6"}, ["j0"])


def test_more_of_one_time_than_are_read_at_once(store: FailedStore) -> None:
    many = AT_ONCE + 20 if isinstance(store, RedisFailedStore) else 30
    for n in range(many):
        store.add(failed(f"j{n:04}", 7))

    assert sorted(ids(store, count=17)) == [f"j{n:04}" for n in range(many)]
    assert store.count() == many


def test_a_job_that_is_forgotten_or_fails_while_pages_are_read(store: FailedStore) -> None:
    for n in range(6):
        store.add(failed(f"j{n}", n))
    first = store.page(count=2)
    store.forget(["j1", "j2"])
    store.add(failed("late", 9))

    rest = store.page(cursor=first.cursor, count=10)

    assert [job.id for job in rest.jobs] == ["j3", "j4", "j5", "late"]


def test_what_is_asked_for(store: FailedStore) -> None:
    store.add(failed("a", 1))
    store.add(failed("b", 2, name="mail.send"))
    store.add(failed("c", 3, queue="mails"))
    store.add(failed("d", 4, connection="other"))

    def asked(**query: object) -> list[str]:
        meant = FailedQuery(**query)  # type: ignore[arg-type]
        assert store.count(meant) == len(ids(store, meant))
        return ids(store, meant, count=1)

    assert asked(name="order.*") == ["a", "c", "d"]
    assert asked(queue="mails") == ["c"]
    assert asked(connection="other") == ["d"]
    assert asked(since_ms=2, until_ms=3) == ["b", "c"]
    assert asked(name="nothing.*") == []


def test_added_again_it_is_one_job_with_its_last_failure(store: FailedStore) -> None:
    store.add(failed("a", 1))
    store.add(failed("b", 2))
    store.add(failed("a", 3, failure=Failure("OSError", "again")))

    assert ids(store) == ["b", "a"]
    again = store.get("a")
    assert again is not None
    assert (again.failure.type, store.count()) == ("OSError", 2)


def test_forget_and_prune_say_how_many(store: FailedStore) -> None:
    for n in range(5):
        store.add(failed(f"j{n}", n * 10))

    assert store.forget(["j0", "nobody"]) == 1
    assert store.forget([]) == 0
    assert store.prune(30) == 2  # those that failed before that time
    assert ids(store) == ["j3", "j4"]
    assert store.prune(30) == 0


def test_an_empty_store(store: FailedStore) -> None:
    assert (store.count(), store.page(), store.get("a"), store.forget(["a"]), store.prune(9)) == (
        0,
        ((), ""),
        None,
        0,
        0,
    )


def test_a_cursor_that_no_page_answered(store: FailedStore) -> None:
    with pytest.raises(InvalidInput, match="is no cursor"):
        store.page(cursor="next")


def test_many_writers_at_once_lose_nothing(store: FailedStore) -> None:
    def write(who: int) -> None:
        for n in range(20):
            store.add(failed(f"w{who}-{n}", n))

    writers = [threading.Thread(target=write, args=(who,)) for who in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()

    assert sorted(ids(store, count=7)) == sorted(f"w{who}-{n}" for who in range(4) for n in range(20))


def test_the_store_may_be_used_again_after_close(store: FailedStore) -> None:
    store.add(failed("a"))
    store.close()

    assert ids(store) == ["a"]


def test_nothing_is_kept_by_null() -> None:
    store = NullFailedStore()
    store.add(failed("a"))

    assert (store.get("a"), store.page(), store.count(), store.forget(["a"]), store.prune(9)) == (
        None,
        ((), ""),
        0,
        0,
        0,
    )


class TestFiles:
    def test_only_their_owner_reads_them(self, tmp_path: Path) -> None:
        FileFailedStore(tmp_path / "deep" / "failed").add(failed("a"))
        folder = tmp_path / "deep" / "failed"

        assert folder.stat().st_mode & 0o777 == 0o700
        (file,) = folder.iterdir()
        assert file.stat().st_mode & 0o777 == 0o600

    def test_a_file_of_somebody_else_keeps_nobody_from_the_others(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        store = FileFailedStore(tmp_path)
        store.add(failed("a"))
        (tmp_path / "notes.json").write_text("[1, 2")
        (tmp_path / "README").write_text("not ours")

        assert ids(store) == ["a"]
        assert f"{tmp_path / 'notes.json'} is no record of a failed job" in caplog.text

    def test_the_record_of_a_job_that_was_damaged_is_an_error_when_it_is_asked_for(self, tmp_path: Path) -> None:
        store = FileFailedStore(tmp_path)
        store.add(failed("a"))
        (file,) = tmp_path.iterdir()
        file.write_bytes(b'{"id": "a"}')

        with pytest.raises(BackendError, match="is no record of a failed job"):
            store.get("a")

    def test_a_folder_that_is_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "failed").write_text("")

        with pytest.raises(
            ConfigError, match=r"Failed jobs cannot be kept in .*failed: .*\. Make it a folder that this user may"
        ):
            FileFailedStore(tmp_path / "failed").add(failed("a"))

    def test_a_write_that_fails_leaves_what_was_there(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        store = FileFailedStore(tmp_path)
        store.add(failed("a", 1))

        def full(handle: int) -> None:
            raise OSError(28, os.strerror(28))

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(BackendError, match="No space left"):
            store.add(failed("a", 2))
        monkeypatch.undo()

        assert [job.failed_ms for job in store.page().jobs] == [1]
        assert len(list(tmp_path.iterdir())) == 1
