"""A worker whose jobs are in a SQLite file: the protocols of `delayq.backends.protocol` need no Redis."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import cast

import pytest

from delayq.backends.protocol import Backend
from delayq.backends.registry import backend_of
from delayq.backends.values import Acked, Failed, Released, SettleAnswer, Settlement, Stopped
from delayq.core.errors import BackendError, ConfigError
from delayq.core.options import Options
from delayq.settings.connections import ConnectionSettings, Routes
from delayq.settings.model import Settings
from delayq.worker.sidecar import move_once
from tests.support.sqlite_backend import SqliteBackend, SqliteClient
from tests.support.waiting import wait_until
from tests.support.workers import end_worker

pytestmark = pytest.mark.processes

PROGRAM = """
import os, signal, sys, time
from pathlib import Path
from delayq import JobContext, job
from delayq.core.options import Options
from delayq.jobs.registry import Registry
from delayq.worker.options import WorkerOptions
from delayq.worker.wiring import work
from tests.support.sqlite_backend import SqliteBackend

folder = Path(sys.argv[1])
registry = Registry()

def note(id: str, word: object) -> None:
    with (folder / id).open("a") as file:
        file.write(f"{word}\\n")

@job("plain", registry=registry)
def plain(context: JobContext) -> None:
    note(context.id, time.time())

@job("once_broken", backoff="300ms", registry=registry)
def once_broken(context: JobContext) -> None:
    note(context.id, time.time())
    if context.attempt == 1:
        raise ValueError("the first attempt")

@job("broken", tries=2, backoff="10ms", registry=registry)
def broken(context: JobContext) -> None:
    raise ValueError(f"attempt {context.attempt}")

@job("long", tries=1, timeout="200ms", registry=registry)
def long(context: JobContext) -> None:
    time.sleep(300)

@job("deaf", tries=1, timeout="200ms", registry=registry)
def deaf(context: JobContext) -> None:
    while True:
        try:
            time.sleep(300)
        except BaseException:
            pass

@job("until_stop", registry=registry)
def until_stop(context: JobContext) -> None:
    note(context.id, "started")
    while not context.stopping:
        time.sleep(0.01)
    note(context.id, "ended")

@job("stubborn", backoff="10ms", registry=registry)
def stubborn(context: JobContext) -> None:
    note(context.id, "started")
    try:
        while True:
            time.sleep(0.01)
    except BaseException:
        raise ValueError("after the stop request") from None

@job("deadly", registry=registry)
def deadly(context: JobContext) -> None:
    note(context.id, f"{context.recoveries} recoveries")
    if context.recoveries == 0:
        os.kill(os.getpid(), signal.SIGKILL)

@job("once_hanging", registry=registry)
def once_hanging(context: JobContext) -> None:
    note(context.id, os.getpid())
    if context.recoveries == 0:
        time.sleep(300)

backend = SqliteBackend(folder / "jobs.db", lease_ms=int(sys.argv[2]))
sys.exit(work(backend, Options(), WorkerOptions(queues=("q",)), registry))
"""

ROOT = Path(__file__).parents[1]
LEASE_MS = 30_000


@pytest.fixture
def backend(tmp_path: Path) -> SqliteBackend:
    return SqliteBackend(tmp_path / "jobs.db", lease_ms=LEASE_MS)


@pytest.fixture
def client(backend: Backend) -> SqliteClient:
    return cast(SqliteClient, backend.session(is_async=False, routes=Routes({})))


Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with ExitStack() as stack:

        def start(*, lease_ms: int = LEASE_MS) -> subprocess.Popen[bytes]:
            words = [sys.executable, "-c", PROGRAM, str(tmp_path), str(lease_ms)]
            worker = subprocess.Popen(words, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)})
            stack.callback(end_worker, worker)
            return worker

        yield start


@pytest.fixture
def worker(start: Start) -> subprocess.Popen[bytes]:
    return start()


@pytest.fixture
def lines(tmp_path: Path) -> Callable[[str], list[str]]:
    """Return the lines that the handler of a job has written."""
    return lambda id: (tmp_path / id).read_text().splitlines() if (tmp_path / id).exists() else []


Lines = Callable[[str], list[str]]


def is_gone(client: SqliteClient, id: str) -> Callable[[], bool]:
    return lambda: client.job(id).state == "absent"


# -- real workers ------------------------------------------------------------------------------------------------------


def test_a_due_job_runs_and_a_delayed_job_runs_after_its_due_time(
    worker: subprocess.Popen[bytes], client: SqliteClient, lines: Lines
) -> None:
    due_ms = client.schedule("plain", "delayed", delay_ms=1500)
    client.schedule("plain", "due")
    wait_until(lambda: lines("delayed") and lines("due"))
    assert float(lines("delayed")[0]) * 1000 >= due_ms
    assert float(lines("due")[0]) < float(lines("delayed")[0])
    for id in ("due", "delayed"):
        wait_until(is_gone(client, id))
        assert len(lines(id)) == 1


def test_a_job_is_tried_again_after_its_backoff(
    worker: subprocess.Popen[bytes], client: SqliteClient, lines: Lines
) -> None:
    client.schedule("once_broken", "job")
    wait_until(lambda: len(lines("job")) == 2)
    first, second = map(float, lines("job"))
    assert second - first >= 0.3
    wait_until(is_gone(client, "job"))


def test_a_job_fails_after_its_tries_with_its_failures(worker: subprocess.Popen[bytes], client: SqliteClient) -> None:
    client.schedule("broken", "job")
    wait_until(lambda: client.job("job").state == "failed")
    failure = client.job("job").failure
    assert failure is not None
    assert (failure.type, failure.message, failure.attempt) == ("ValueError", "attempt 2", 2)
    assert [earlier.message for earlier in failure.history] == ["attempt 1"]


@pytest.mark.parametrize("name", ["long", "deaf"])
def test_a_job_fails_at_its_timeout_and_its_worker_goes_on(
    worker: subprocess.Popen[bytes], client: SqliteClient, lines: Lines, name: str
) -> None:
    client.schedule(name, "job")
    wait_until(lambda: client.job("job").state == "failed")
    failure = client.job("job").failure
    assert failure is not None and failure.type == "JobTimedOut"
    client.schedule("plain", "next")
    wait_until(is_gone(client, "next"))
    assert len(lines("next")) == 1
    assert worker.poll() is None


def test_a_worker_that_is_stopped_finishes_its_job(
    worker: subprocess.Popen[bytes], client: SqliteClient, lines: Lines
) -> None:
    ids = ("first", "second", "third")
    for id in ids:
        client.schedule("until_stop", id)

    def states() -> list[str]:
        return sorted(client.job(id).state for id in ids)

    wait_until(lambda: states() == ["ready", "ready", "reserved"] and any(map(lines, ids)))
    worker.send_signal(signal.SIGTERM)
    wait_until(lambda: worker.poll() is not None)
    assert worker.returncode == 0
    assert sorted(map(lines, ids)) == [[], [], ["started", "ended"]]
    assert states() == ["absent", "ready", "ready"]


def test_a_job_that_kills_its_process_comes_back_with_one_recovery(
    worker: subprocess.Popen[bytes], client: SqliteClient, lines: Lines
) -> None:
    client.schedule("deadly", "job")
    wait_until(is_gone(client, "job"))
    assert lines("job") == ["0 recoveries", "1 recoveries"]


def test_a_job_that_was_asked_to_stop_and_fails_never_runs_again(
    worker: subprocess.Popen[bytes], client: SqliteClient, lines: Lines
) -> None:
    client.schedule("stubborn", "job")
    wait_until(lambda: lines("job"))
    client.cancel("job")
    wait_until(is_gone(client, "job"))
    client.schedule("plain", "next", delay_ms=100)
    wait_until(is_gone(client, "next"))
    assert lines("job") == ["started"]


def test_jobs_of_a_killed_worker_come_back_after_their_lease(start: Start, client: SqliteClient, lines: Lines) -> None:
    first = start(lease_ms=2000)
    client.schedule("once_hanging", "job")
    wait_until(lambda: lines("job"))
    end_worker(first)
    assert client.job("job").state == "reserved"
    start(lease_ms=2000)
    wait_until(is_gone(client, "job"))
    assert len(set(lines("job"))) == 2


def test_the_settings_can_name_a_driver_outside_of_delayq(tmp_path: Path, client: SqliteClient) -> None:
    (tmp_path / "delayq.toml").write_text(
        f'connection = "jobs"\n[connections.jobs]\nurl = "{tmp_path}/jobs.db"\n'
        'driver = "tests.support.sqlite_backend:SqliteDriver"\n'
    )
    (tmp_path / "shop.py").write_text("from delayq import job\n@job('plain', queue='q')\ndef plain() -> None: ...\n")
    client.schedule("plain", "job")
    words = [sys.executable, "-m", "delayq", "work", "--app", "shop", "--max-jobs", "1"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run(words, cwd=tmp_path, env=environment, check=True, timeout=60)
    assert client.job("job").state == "absent"


@pytest.mark.parametrize("driver", ["tests.support.sqlite_backend:Missing", "missing.module:Driver"])
def test_a_driver_that_cannot_be_imported_is_refused(driver: str) -> None:
    settings = Settings(connections={"jobs": ConnectionSettings(driver=driver)}).of_connection("jobs")
    with pytest.raises(ConfigError, match=f"The driver {driver} cannot be imported: "):
        backend_of(settings)


def test_no_module_of_the_worker_imports_redis() -> None:
    program = """
import pkgutil, sys
from importlib import import_module
import delayq.worker
for module in pkgutil.walk_packages(delayq.worker.__path__, "delayq.worker."):
    import_module(module.name)
print(*sys.modules, sep="\\n")
"""
    ran = subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, capture_output=True, text=True)
    modules = ran.stdout.splitlines()
    assert "delayq.worker.wiring" in modules
    assert not [name for name in modules if name.startswith(("redis", "hiredis", "delayq.redis"))]


# -- the backend without a worker --------------------------------------------------------------------------------------


class Held:
    """A consumer that has taken all due jobs."""

    def __init__(self, backend: SqliteBackend, *, name: str = "c1", wake_fd: int | None = None) -> None:
        backend.queue_keeper(["q"], name="keeper").promote("q")
        self.consumer = backend.consumer(["q"], name=name, wake_fd=wake_fd)
        self.answers, self.jobs = self.consumer.complete(self.consumer.begin([], 10))

    def settle(self, *settled: Settlement) -> list[int | BackendError]:
        return self.consumer.complete(self.consumer.begin(settled, 0))[0]


def test_a_job_goes_to_one_consumer_and_a_settlement_of_an_older_delivery_is_fenced(
    backend: SqliteBackend, client: SqliteClient
) -> None:
    client.schedule("plain", "job")
    first = Held(backend)
    (old,) = first.jobs
    assert Held(backend, name="c2").jobs == []
    first.consumer.hand_back([old.ref])
    second = Held(backend, name="c2")
    (new,) = second.jobs
    assert new.entry > old.entry
    assert new.recoveries == 0
    first.consumer.hand_back([old.ref])
    assert first.consumer.pending() == []
    assert first.settle(Acked("q", "job", old.entry)) == [SettleAnswer.FENCED]
    assert second.consumer.pending() == [new]
    assert second.settle(Acked("q", "job", new.entry), Acked("q", "job", new.entry)) == [
        SettleAnswer.SETTLED,
        SettleAnswer.FENCED,
    ]
    assert client.job("job").state == "absent"


def test_a_job_that_was_asked_to_stop_is_neither_released_nor_failed(
    backend: SqliteBackend, client: SqliteClient
) -> None:
    client.schedule("plain", "job")
    held = Held(backend)
    (job,) = held.jobs
    keeper = backend.lease_keeper(["q"])
    client.cancel("job")
    assert keeper.stop_requests() == [("q", "job")]
    assert keeper.stop_requests() == []
    assert keeper.renew("c1", [job.ref]).cancelled == [("q", "job")]
    released = Released("q", "job", job.entry, 0, job.envelope, b"")
    failed = Failed("q", "job", job.entry, b"", b"")
    assert held.settle(released, failed) == [SettleAnswer.STOP_ASKED, SettleAnswer.STOP_ASKED]
    held.consumer.hand_back([job.ref])
    again = Held(backend)
    (stopping,) = again.jobs
    assert stopping.is_stopping
    assert again.settle(Stopped("q", "job", stopping.entry)) == [SettleAnswer.SETTLED]


def test_jobs_of_a_dead_child_are_settled(backend: SqliteBackend, client: SqliteClient) -> None:
    for id in ("done", "unstarted", "vanished", "decided", "stopped"):
        client.schedule("plain", id)
    refs = {job.id: job.ref for job in Held(backend).jobs}
    client.cancel("stopped")
    keeper = backend.lease_keeper(["q"])
    assert {job.id for job in keeper.pending("c1")} == set(refs)
    decided: list[Settlement] = [Failed("q", id, refs[id].entry, b"", b"") for id in ("decided", "stopped")]
    assert keeper.settle_after_death([refs["done"]], [refs["unstarted"]], [refs["vanished"]], decided) == []
    assert keeper.pending("c1") == []
    assert {id: (client.job(id).state, client.job(id).recoveries) for id in refs} == {
        "done": ("absent", 0),
        "unstarted": ("ready", 0),
        "vanished": ("ready", 1),
        "decided": ("failed", 0),
        "stopped": ("absent", 0),
    }


def test_a_job_fails_when_it_has_too_many_recoveries(backend: SqliteBackend, client: SqliteClient) -> None:
    client.schedule("plain", "job")
    keeper = backend.lease_keeper(["q"])
    for recoveries in range(3):
        (job,) = Held(backend).jobs
        assert job.recoveries == recoveries
        assert keeper.settle_after_death([], [], [job.ref], []) == []
    (job,) = Held(backend).jobs
    assert keeper.settle_after_death([], [], [job.ref], []) == [job.ref]
    failed = client.job("job")
    assert failed.failure is not None
    assert (failed.state, failed.recoveries, failed.failure.type) == ("failed", 4, "WorkerVanished")


def test_a_lease_expires_unless_it_is_renewed(tmp_path: Path) -> None:
    backend = SqliteBackend(tmp_path / "jobs.db", lease_ms=400)
    client = cast(SqliteClient, backend.session(is_async=False, routes=Routes({})))
    loops = backend.queue_keeper(["q"], name="keeper")
    keeper = backend.lease_keeper(["q"])
    for id in ("renewed", "silent"):
        client.schedule("plain", id)
    held = {job.id: job for job in Held(backend).jobs}
    assert 0 < loops.reclaim("q").hold_ms <= 400

    def is_reclaimed() -> bool:
        assert keeper.renew("c1", [held["renewed"].ref]).more in (0, 1)
        return loops.reclaim("q").reclaimed > 0

    wait_until(is_reclaimed)
    assert client.job("silent")._replace(failure=None) == ("ready", 1, None)
    assert client.job("renewed").state == "reserved"


def test_the_loops_run_without_a_worker(backend: SqliteBackend, client: SqliteClient) -> None:
    client.schedule("plain", "due")
    client.schedule("plain", "delayed", delay_ms=60_000)
    assert move_once(backend, Options(), allows_eviction=False) == (1, True)
    assert (client.job("due").state, client.job("delayed").state) == ("ready", "scheduled")


def test_a_signal_ends_a_wait_and_its_mark_is_taken(backend: SqliteBackend, client: SqliteClient) -> None:
    read_fd, write_fd = os.pipe()
    try:
        client.schedule("plain", "job")
        held = Held(backend, wake_fd=read_fd)
        os.write(write_fd, b"\x17")
        assert held.consumer.wait(60) == held.jobs
        assert held.consumer.wait(0.05) == []
    finally:
        os.close(read_fd)
        os.close(write_fd)
