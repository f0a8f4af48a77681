"""Models in real workers: databases that hang or restart, and the connections of Django."""

import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

from delayq import DelayQ
from tests.support.topologies import lines
from tests.support.waiting import wait_until
from tests.support.workers import workers_of

pytestmark = pytest.mark.processes

HANGS = """
import asyncio, os, time
from contextlib import asynccontextmanager, contextmanager
from delayq import job, use_models

log = os.open("log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

def note(text):
    os.write(log, f"{text}\\n".encode())

class Model:
    pass

class Database:
    def name_of(self, kind):
        return "app.Model" if kind is Model else None

    def key_of(self, model):
        return 1

    @contextmanager
    def load(self, wanted):
        note("load")
        time.sleep(60)
        yield [Model() for _ in wanted]

    @asynccontextmanager
    async def aload(self, wanted):
        note("load")
        await asyncio.sleep(60)
        yield [Model() for _ in wanted]

use_models(Database())

@job("plain", queue="q", timeout="1s", tries=1)
def plain(model: Model):
    note("plain")

@job("async", queue="q", timeout="1s", tries=1)
async def coroutine(model: Model):
    note("async")

@job("other", queue="q", timeout="30s")
def other(n: int):
    note(f"other {n}")
    time.sleep(0.05)

@job("aother", queue="q", timeout="30s")
async def aother(n: int):
    note(f"other {n}")
    await asyncio.sleep(0.05)
"""

DJANGO = """
import os, sys, time
import django
from django.conf import settings

settings.configure(
    DATABASES={"default": {"CONN_MAX_AGE": None, **DATABASE}},
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
)
django.setup()
from django.db import connection, models
from delayq import job

class Slow(models.Manager):
    def get_queryset(self):
        note("load")
        time.sleep(60)

class Order(models.Model):
    state = models.CharField(max_length=10)
    class Meta:
        app_label = "shop"

class Hanging(models.Model):
    objects = Slow()
    class Meta:
        app_label = "shop"
        base_manager_name = "objects"

log = os.open("log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

def note(text):
    os.write(log, f"{text}\\n".encode())

@job("hangs", queue="q", timeout="1s", tries=1)
async def hangs(hanging: Hanging):
    note("hangs")

@job("save", queue="q", tries=3, backoff="0s")
async def save(order: Order, state: str):
    order.state = state
    await order.asave()
    note(state)

@job("count", queue="q", tries=2, backoff="0s")
def count(n: int):
    note(f"count {Order.objects.count()} in {os.getpid()}")

@job("acount", queue="q", tries=2, backoff="0s")
async def acount(n: int):
    note(f"count {await Order.objects.acount()} in {os.getpid()}")

if __name__ == "__main__":
    with connection.schema_editor() as editor:
        editor.create_model(Order)
    Order.objects.create(pk=42, state="new")
"""


@pytest.fixture
def client(url: str, server: redis.Redis) -> Iterator[DelayQ]:
    with DelayQ(url, queue="q") as client:
        yield client


def acked(client: DelayQ) -> int:
    (stats,) = client.stats("q")
    return stats.counters.get("acked", 0)


@pytest.mark.parametrize(
    ("name", "other", "threads"), [("plain", "other", "1"), ("plain", "other", "2"), ("async", "aother", "2")]
)
def test_a_database_that_hangs_times_out_and_other_jobs_continue(  # noqa: PLR0917
    client: DelayQ, url: str, tmp_path: Path, name: str, other: str, threads: str
) -> None:
    with workers_of(HANGS, tmp_path, url, DELAYQ_TIMEOUT_GRACE="1s") as start:
        start("--queue", "q", "--processes", "2", "--threads", threads)
        hanging = client.schedule(name, {"model": {"model": "app.Model", "key": 1}})
        wait_until(lambda: lines(tmp_path / "log"))
        for n in range(20):
            client.schedule(other, {"n": n})
        wait_until(lambda: (info := client.get(hanging.id)) and info.state == "failed", patience=30)
        info = client.get(hanging.id)
        assert info is not None and info.failure is not None
        assert (info.failure.type, info.attempts) == ("JobTimedOut", 1)
        wait_until(lambda: acked(client) == 20)
    log = lines(tmp_path / "log")
    assert log.count("load") == 1 and name not in log


def sqlite_app(folder: Path) -> str:
    return f"DATABASE = {{'ENGINE': 'django.db.backends.sqlite3', 'NAME': {str(folder / 'shop.db')!r}}}\n" + DJANGO


def create_tables(app: str, folder: Path) -> None:
    (folder / "app.py").write_text(app)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    subprocess.run([sys.executable, "app.py"], cwd=folder, env=environment, check=True)


def test_async_jobs_of_django_continue_beside_one_whose_database_hangs(
    client: DelayQ, url: str, tmp_path: Path
) -> None:
    create_tables(sqlite_app(tmp_path), tmp_path)
    with workers_of(sqlite_app(tmp_path), tmp_path, url) as start:
        worker = start("--queue", "q", "--processes", "1", "--threads", "10")
        hanging = client.schedule("hangs", {"hanging": {"model": "shop.Hanging", "key": 1}})
        wait_until(lambda: lines(tmp_path / "log") == ["load"])
        order = {"model": "shop.Order", "key": 42}
        for state in ("paid", "sent"):
            saved = client.schedule("save", {"order": order, "state": state})
            wait_until(lambda: client.get(saved.id) is None)  # noqa: B023
        assert lines(tmp_path / "log") == ["load", "paid", "sent"]
        wait_until(lambda: (info := client.get(hanging.id)) and info.state == "failed", patience=30)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(timeout=30) == 0


@contextmanager
def postgres(folder: Path) -> Iterator["Postgres"]:
    """Run a PostgreSQL server on a unix socket, with the programs of this machine."""
    if shutil.which("initdb") is None or shutil.which("pg_ctl") is None:
        pytest.skip("PostgreSQL (initdb and pg_ctl) is not installed")
    pytest.importorskip("psycopg")
    server = Postgres(folder)
    try:
        yield server
    finally:
        server.run("pg_ctl", "-D", str(folder / "data"), "-m", "immediate", "stop")


class Postgres:
    """A server whose data and socket are in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        if os.getuid() == 0:  # PostgreSQL refuses to run as root
            shutil.chown(folder, "postgres")
        self.run("initdb", "-D", str(folder / "data"), "-U", "shop", "--auth=trust", "--no-sync")
        self.start()

    def start(self) -> None:
        options = f"-c listen_addresses= -c unix_socket_directories={self.folder} -c fsync=off"
        self.run("pg_ctl", "-D", f"{self.folder}/data", "-l", f"{self.folder}/log", "-w", "-o", options, "start")

    def restart(self) -> None:
        self.run("pg_ctl", "-D", f"{self.folder}/data", "-l", f"{self.folder}/log", "-w", "-m", "fast", "restart")

    def run(self, *words: str) -> None:
        user = pwd.getpwnam("postgres").pw_uid if os.getuid() == 0 else None
        subprocess.run(words, check=True, user=user, cwd=self.folder, stdout=subprocess.DEVNULL)


@pytest.fixture
def database() -> Iterator[Postgres]:
    folder = Path(tempfile.mkdtemp(prefix="delayq-postgres-"))  # short, because of the limit of paths of sockets
    try:
        with postgres(folder) as server:
            yield server
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize("threads", ["1", "3"])
@pytest.mark.parametrize("name", ["count", "acount"])
def test_jobs_without_model_fields_work_after_a_restart_of_the_database(  # noqa: PLR0917
    client: DelayQ, url: str, tmp_path: Path, database: Postgres, name: str, threads: str
) -> None:
    settings = {"ENGINE": "django.db.backends.postgresql", "NAME": "postgres", "USER": "shop", "HOST": database.folder}
    app = f"DATABASE = {json.dumps(settings, default=str)}\n{DJANGO}"
    create_tables(app, tmp_path)
    with workers_of(app, tmp_path, url) as start:
        start("--queue", "q", "--processes", "1", "--threads", threads)
        for round_ in range(2):
            for n in range(6):
                # A job may meet the old connection of each thread, one after the other.
                client.schedule(name, {"n": n}, tries=20, backoff="200ms")
            wait_until(lambda: acked(client) == 6 * (round_ + 1), patience=30)  # noqa: B023
            if not round_:
                database.restart()
                time.sleep(0.1)
    log = lines(tmp_path / "log")
    assert len(log) == 12 and len(set(log)) == 1  # the same child ran all jobs
    assert client.stats("q")[0].counters.get("failed", 0) == 0
