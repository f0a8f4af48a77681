"""A worker with `--grace 15s` is stopped under a job of 10 s, or a longer one: alone, as process 1, with Redis hung."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from delayq import DelayQ
from delayq.settings.model import load_settings
from tests.chaos.test_faults import Server
from tests.chaos.test_kills import children_of
from tests.support.lines import complete_lines
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(120)]

LEASE: Final = "2s"
CONTAINER: Final = ("unshare", "--pid", "--fork", "--kill-child")

APP: Final = """
import time
from delayq import JobContext, WorkerShutdown, job

def note(what):
    with open("notes", "a") as file:
        file.write(what + "\\n")

@job("work", queue="q")
def work(context: JobContext, seconds: float) -> None:
    note(f"started {context.attempt} {context.recoveries}")
    try:
        time.sleep(seconds)
    except WorkerShutdown:
        note("interrupted")
        raise
    note("ended")
"""


@dataclass
class Stop:
    """A server, and a worker that is stopped. `before` are the words of a program that starts the worker."""

    server: Server
    client: DelayQ
    folder: Path
    before: tuple[str, ...]
    worker: "subprocess.Popen[bytes] | None" = None

    def start(self, *, before: tuple[str, ...] = ()) -> "subprocess.Popen[bytes]":
        words = [*before, sys.executable, "-m", "delayq", "work", "--app", "app", "--grace", "15s"]
        environment = {
            **os.environ,
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "DELAYQ_URL": self.server.url,
            "DELAYQ_LEASE": LEASE,
        }
        self.worker = subprocess.Popen(words, cwd=self.folder, env=environment)
        return self.worker

    def start_job(self, seconds: float) -> str:
        """Start the worker, let a job of so many seconds begin, and return its id."""
        self.start(before=self.before)
        ref = self.client.schedule("work", {"seconds": seconds}, queue="q")
        wait_until(lambda: self.notes() == ["started 1 0"], "the start of the job")
        return ref.id

    def term(self) -> None:
        assert self.worker is not None
        pid = children_of(self.worker.pid)[0] if self.before else self.worker.pid
        os.kill(pid, signal.SIGTERM)

    def exit_code(self) -> int:
        assert self.worker is not None
        return self.worker.wait(timeout=60)

    def notes(self) -> list[str]:
        file = self.folder / "notes"
        return complete_lines(file)

    def is_handed_back(self, job_id: str) -> bool:
        """Whether a job is ready again, and was charged with nothing."""
        found = self.client.get(job_id, queue="q")
        assert found is not None
        return (found.state, found.attempts, found.recoveries) == ("ready", 0, 0)

    def finish(self) -> None:
        """Let another worker run what is left."""
        self.start()
        wait_until(lambda: not sum(self.left()), "the end of all jobs", patience=60)
        assert self.worker is not None
        self.worker.terminate()
        assert self.exit_code() == 0

    def left(self) -> tuple[int, int, int, int]:
        (stats,) = self.client.stats("q")
        return stats.scheduled, stats.ready, stats.reserved, stats.failed


@pytest.fixture(params=[(), CONTAINER], ids=["a process", "process 1"])
def stop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stop]:
    before: tuple[str, ...] = request.param
    if before and subprocess.run([*before, "true"], check=False, capture_output=True).returncode != 0:
        pytest.skip("this system allows no pid namespace")
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "server").mkdir()
    server = Server(tmp_path / "server")
    server.start()
    with DelayQ(settings=load_settings(url=server.url, lease=LEASE)) as client:
        stop = Stop(server, client, tmp_path, before)
        try:
            yield stop
        finally:
            if stop.worker is not None:
                stop.worker.kill()
                stop.worker.wait()
            server.stop()


def test_a_job_of_10_s_finishes_and_nothing_new_is_started(stop: Stop) -> None:
    stop.start_job(10)
    behind = stop.client.schedule("work", {"seconds": 0}, queue="q")
    stop.term()
    assert stop.exit_code() == 0
    assert stop.notes() == ["started 1 0", "ended"]
    assert stop.left() == (0, 1, 0, 0)
    assert stop.is_handed_back(behind.id)


def test_a_longer_job_is_interrupted_and_handed_back_uncounted(stop: Stop) -> None:
    job_id = stop.start_job(1000)
    stop.term()
    assert stop.exit_code() == 0
    assert stop.notes() == ["started 1 0", "interrupted"]
    assert stop.is_handed_back(job_id)


def test_the_same_signal_again_leaves_at_once_and_hands_back_uncounted(stop: Stop) -> None:
    job_id = stop.start_job(10)
    stop.term()
    time.sleep(2.5)
    stop.term()
    assert stop.exit_code() == 130
    assert stop.notes() == ["started 1 0"]
    assert stop.is_handed_back(job_id)


@pytest.mark.parametrize(
    ("again", "code", "noted"), [(False, 0, ["started 1 0", "ended"]), (True, 130, ["started 1 0"])]
)
def test_while_redis_hangs_the_worker_ends_as_well_and_nothing_is_lost(
    stop: Stop, again: bool, code: int, noted: list[str]
) -> None:
    stop.start_job(10)
    stop.server.send(signal.SIGSTOP)
    try:
        stop.term()
        if again:
            time.sleep(2.5)
            stop.term()
        assert stop.exit_code() == code
    finally:
        stop.server.send(signal.SIGCONT)
    assert stop.notes() == noted
    stop.finish()
    assert stop.notes()[-1] == "ended"
    assert stop.notes()[len(noted) :] in ([], ["started 1 0", "ended"], ["started 1 1", "ended"])
