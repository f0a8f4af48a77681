"""Redis loses all of its data under a worker, or is not there when it starts; one job takes all memory repeatedly."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
import redis

from delayq import DelayQ, JobSpec
from tests.chaos.test_faults import Server
from tests.chaos.test_kills import children_of
from tests.support.lines import complete_lines
from tests.support.servers import private_server
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(180)]

JOBS: Final = 200

APP: Final = """
import os, time
from delayq import JobContext, job

log = os.open("starts", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

def note(context):
    os.write(log, f"{context.id} {context.attempt} {context.recoveries} {time.time()}\\n".encode())

@job("work", queue="q", tries=2)
def work(context: JobContext, seconds: float = 0.005) -> None:
    note(context)
    time.sleep(seconds)

@job("hog", queue="q", tries=2, backoff="100ms")
def hog(context: JobContext) -> None:
    note(context)
    kept = []
    while True:
        kept.append(b"x" * 8_000_000)
        time.sleep(0.01)
"""


class Worker:
    """A worker in a folder of its own, and what it wrote."""

    def __init__(self, folder: Path, url: str, *options: str) -> None:
        (folder / "app.py").write_text(APP)
        environment = {
            **os.environ,
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "DELAYQ_URL": url,
            "DELAYQ_TIDY_EVERY": "1s",
            "DELAYQ_LEASE": "2s",
        }
        words = [sys.executable, "-m", "delayq", "work", "--app", "app", *options]
        self._log = folder / "worker.log"
        self._starts = folder / "starts"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(words, cwd=folder, env=environment, stderr=log)

    def log(self) -> list[str]:
        return complete_lines(self._log)

    def starts(self) -> list[list[str]]:
        """Return the starts of jobs: id, attempt, recoveries, and the time."""
        return [line.split() for line in complete_lines(self._starts)]

    def has_started(self, ids: list[str]) -> bool:
        return set(ids) <= {start[0] for start in self.starts()}

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(timeout=60)


@contextmanager
def working(folder: Path, url: str, *options: str) -> Iterator[Worker]:
    worker = Worker(folder, url, *options)
    try:
        yield worker
    finally:
        worker.process.kill()
        worker.process.wait()


# -- all data is lost --------------------------------------------------------------------------------------------------


class Address:
    """A socket that leads to one server or another."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._servers: list[Server] = []
        self.url = f"unix://{folder}/current.sock"
        self.fail_over()

    @property
    def server(self) -> Server:
        return self._servers[-1]

    def fail_over(self) -> None:
        """Let the socket lead to a new server, which is empty. The old one goes on as a replica."""
        folder = self._folder / f"server-{len(self._servers)}"
        folder.mkdir()
        new = Server(folder)
        new.start()
        link = self._folder / "new.sock"
        link.symlink_to(folder / "redis.sock")
        link.rename(self._folder / "current.sock")
        if self._servers:
            with redis.Redis.from_url(self.server.url) as connection:
                connection.replicaof("127.0.0.1", 1)
        self._servers.append(new)

    def restart_empty(self) -> None:
        """Kill the server, and start it again without what it had."""
        self.server.stop()
        time.sleep(2)
        for file in self.server.folder.rglob("*"):
            if file.is_file() or file.is_socket():
                file.unlink()
        self.server.start()

    def flush(self) -> None:
        with redis.Redis.from_url(self.url) as connection:
            connection.flushall()

    def stop(self) -> None:
        for server in self._servers:
            server.stop()


LOSSES: Final[list[Callable[[Address], None]]] = [Address.restart_empty, Address.flush, Address.fail_over]


@pytest.fixture
def address(tmp_path: Path) -> Iterator[Address]:
    address = Address(tmp_path)
    yield address
    address.stop()


@pytest.mark.parametrize("lose", LOSSES, ids=[lose.__name__ for lose in LOSSES])
def test_a_server_that_lost_everything_is_told_once_and_the_worker_goes_on(
    lose: Callable[[Address], None], address: Address, tmp_path: Path
) -> None:
    with DelayQ(address.url) as client, working(tmp_path, address.url, "--processes", "2") as worker:
        run_jobs(client, worker)
        lost = client.schedule_many([JobSpec(name="work", queue="q", delay="4s") for _ in range(JOBS)])
        client.schedule("work", {"seconds": 5}, queue="q")
        wait_until(lambda: client.stats("q")[0].reserved == 1)
        children = children_of(worker.process.pid)
        time.sleep(1.1)  # the janitor has looked
        before = len(worker.log())
        lose(address)
        run_jobs(client, worker)
        wait_until(lambda: not any(left(client)), "the end of all jobs")
        assert not worker.has_started([lost[0].id])
        assert children_of(worker.process.pid) == children
        assert worker.stop() == 0
    said = worker.log()[before:]
    print(f"\n{lose.__name__}: " + "\n  ".join(said))
    assert sum("was reset" in line for line in said) == 1
    assert not any("Traceback" in line for line in said)
    assert len(said) <= 20


def run_jobs(client: DelayQ, worker: Worker) -> None:
    """Schedule jobs, some of them for later, and wait until all have started."""
    specs = [JobSpec(name="work", queue="q", delay=f"{n % 4 * 300}ms") for n in range(JOBS)]
    ids = [ref.id for ref in client.schedule_many(specs)]
    wait_until(lambda: worker.has_started(ids), "the start of all jobs")


def left(client: DelayQ) -> tuple[int, int, int, int]:
    (stats,) = client.stats("q")
    return stats.scheduled, stats.ready, stats.reserved, stats.failed


# -- no server at the start --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url", ["redis://127.0.0.1:1/0", "redis://no-such-host.invalid:6379/0", "unix:///no/redis.sock"]
)
def test_a_worker_without_redis_waits_says_so_and_ends_at_once(url: str, tmp_path: Path) -> None:
    with working(tmp_path, url) as worker:
        wait_until(lambda: sum("waiting for Redis" in line for line in worker.log()) >= 2)
        assert " times): " in worker.log()[-1]
        assert worker.stop() == 0
    print("\n" + worker.log()[1])


def test_a_worker_that_was_there_before_redis_works_when_it_comes(tmp_path: Path) -> None:
    (tmp_path / "server").mkdir()
    server = Server(tmp_path / "server")
    with working(tmp_path, server.url) as worker:
        wait_until(lambda: any("waiting for Redis" in line for line in worker.log()))
        server.start()
        try:
            with DelayQ(server.url) as client:
                run_jobs(client, worker)
            assert worker.stop() == 0
        finally:
            server.stop()


# -- a job that takes all memory ---------------------------------------------------------------------------------------


class OutOfMemoryKiller(threading.Thread):
    """Kills each child of a worker that is larger than 300 MB, as the kernel does in a container."""

    def __init__(self, worker: Worker) -> None:
        super().__init__(daemon=True)
        self._worker = worker
        self.kills = 0
        self.is_over = False

    def run(self) -> None:
        while not self.is_over:
            for pid in children_of(self._worker.process.pid):
                if resident_bytes(pid) > 300_000_000:
                    os.kill(pid, signal.SIGKILL)
                    self.kills += 1
            time.sleep(0.02)


def resident_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


@pytest.mark.parametrize("threads", [1, 4])
def test_a_job_that_takes_all_memory_fails_at_its_fourth_death_and_blocks_no_other(
    threads: int, tmp_path: Path
) -> None:
    with private_server() as url, DelayQ(url) as client, working(tmp_path, url, "--threads", str(threads)) as worker:
        killer = OutOfMemoryKiller(worker)
        killer.start()
        specs = [JobSpec(name="work", queue="q", delay=f"{n * 50}ms") for n in range(JOBS)]
        client.schedule("hog", id="hog", queue="q")
        ids = [ref.id for ref in client.schedule_many(specs)]
        wait_until(lambda: left(client) == (0, 0, 0, 1), "the end of all jobs", patience=100)
        found = client.get("hog", queue="q")
        killer.is_over = True
        assert worker.stop() == 0
    assert found is not None
    assert (found.state, found.attempts, found.recoveries) == ("failed", 0, 4)
    hogs = [float(start[3]) for start in worker.starts() if start[0] == "hog"]
    others = [start for start in worker.starts() if start[0] != "hog"]
    assert {start[0] for start in others} == set(ids)
    assert {start[1] for start in others} == {"1"}
    between = sum(hogs[0] < float(start[3]) < hogs[-1] for start in others)
    print(
        f"\n{threads} threads: {killer.kills} processes were killed for memory; {between} of {JOBS} other jobs ran "
        f"between the first and the last of {len(hogs)} starts, {len(others) - JOBS} ran again"
    )
    assert (killer.kills, len(hogs)) == (4, 4)
    assert between
    assert len(others) - JOBS <= 4 * (threads - 1)
