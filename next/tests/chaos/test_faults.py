"""Processes are frozen, and Redis is hung, killed, full or cannot save, while workers work: no job is lost or early."""

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
import redis

from delayq import DelayQ, JobSpec
from delayq.settings.model import load_settings
from tests.chaos.test_kills import APP, Run, children_of, counted
from tests.support.servers import server_program
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]

JOBS: Final = 3_000
SPREAD_MS: Final = 15_000
FREEZE: Final = 4.0
"""Seconds: longer than two leases."""


@dataclass
class Server:
    """A server that keeps each write on disk, and can be started again."""

    folder: Path
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def url(self) -> str:
        return f"unix://{self.folder}/redis.sock"

    def start(self) -> None:
        socket = self.folder / "redis.sock"
        words = [server_program(), "--port", "0", "--unixsocket", str(socket), "--dir", str(self.folder)]
        words += ["--appendonly", "yes", "--appendfsync", "always", "--save", ""]
        self.process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
        wait_until(self.answers, "the server's first answer")

    def answers(self) -> bool:
        try:
            with redis.Redis.from_url(self.url) as connection:
                return bool(connection.ping())
        except redis.RedisError:
            return False

    def configure(self, **options: str) -> None:
        with redis.Redis.from_url(self.url) as connection:
            for name, value in options.items():
                connection.config_set(name.replace("_", "-"), value)

    def send(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def stop(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()


@contextmanager
def frozen(*process_ids: int) -> Iterator[None]:
    for process_id in process_ids:
        os.kill(process_id, signal.SIGSTOP)
    try:
        yield
    finally:
        for process_id in process_ids:
            os.kill(process_id, signal.SIGCONT)


def freeze_a_child(run: Run, server: Server) -> None:
    with frozen(children_of(run.workers[0].pid)[0]):
        time.sleep(FREEZE)


def freeze_a_worker(run: Run, server: Server) -> None:
    worker = run.workers[0].pid
    with frozen(worker, *children_of(worker)):
        time.sleep(FREEZE)


def freeze_a_supervisor(run: Run, server: Server) -> None:
    with frozen(run.workers[0].pid):
        time.sleep(FREEZE)


def hang_redis(run: Run, server: Server) -> None:
    server.send(signal.SIGSTOP)
    time.sleep(FREEZE)
    server.send(signal.SIGCONT)


def kill_redis(run: Run, server: Server) -> None:
    server.stop()
    time.sleep(FREEZE)
    server.start()


def fill_redis(run: Run, server: Server) -> None:
    server.configure(maxmemory="1")
    time.sleep(FREEZE)
    server.configure(maxmemory="0")


def forbid_redis_to_save(run: Run, server: Server) -> None:
    """Let a snapshot fail, so that the server refuses writes (MISCONF) until another one succeeds."""
    with redis.Redis.from_url(server.url) as connection:
        snapshot = server.folder / "dump.rdb"
        snapshot.mkdir()  # where a file is to be
        connection.config_set("save", "3600 1")
        connection.bgsave()
        wait_until(lambda: connection.info("persistence")["rdb_last_bgsave_status"] == "err")
        time.sleep(FREEZE)
        snapshot.rmdir()
        connection.config_set("save", "")


FAULTS: Final[list[Callable[[Run, Server], None]]] = [
    freeze_a_child,
    freeze_a_worker,
    freeze_a_supervisor,
    hang_redis,
    kill_redis,
    fill_redis,
    forbid_redis_to_save,
]


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.__name__ for fault in FAULTS])
def test_no_job_is_lost_or_early_whatever_stops(fault: Callable[[Run, Server], None], tmp_path: Path) -> None:
    (tmp_path / "chaos_app.py").write_text(APP)
    (tmp_path / "server").mkdir()
    server = Server(tmp_path / "server")
    server.start()
    run = Run(tmp_path, server.url, random.Random(1))
    try:
        with DelayQ(settings=load_settings(url=server.url, lease="1500ms")) as client:
            specs = [
                JobSpec(name="work", data={"number": n}, queue="q", delay=f"{run.random.randrange(SPREAD_MS)}ms")
                for n in range(JOBS)
            ]
            run.start_worker(threads=1)
            run.start_worker(threads=4)
            dues = [ref.due_ms or 0 for ref in client.schedule_many(specs)]
            wait_until(lambda: all(len(children_of(worker.pid)) == 3 for worker in run.workers))
            wait_until(lambda: run.log.exists() and len(run.starts()) > JOBS / 10)
            fault(run, server)
            wait_until(lambda: counted(client) == 0, "the end of all jobs", patience=60)
            (stats,) = client.stats("q")
    finally:
        run.stop()
        server.stop()
    starts = run.starts()
    assert sorted(starts) == list(range(JOBS))
    assert run.ends() == set(range(JOBS))
    assert [n for n, due in enumerate(dues) if min(starts[n]) * 1000 < due] == []
    assert max(len(times) for times in starts.values()) <= 4
    twice = sum(len(times) > 1 for times in starts.values())
    print(f"{fault.__name__}: {twice} of {JOBS} jobs ran more than once; {stats.counters}")
