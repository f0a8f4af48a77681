"""Handlers that do what no handler should, in each executor, with a timeout and without: only their own job suffers.

Each of these jobs has 50 innocent ones beside it. Afterwards each innocent one has run, was charged with no attempt,
and ran once, unless it was running in a process that another job ended. Each other job has ended as it should.
"""

import os
import re
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from delayq import DelayQ, JobSpec
from tests.support.lines import complete_lines
from tests.support.servers import private_server
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(400)]

INNOCENT: Final = 50
HOUR_MS: Final = 3_600_000


@dataclass(frozen=True)
class Case:
    """The job of a handler. `attempts` are those that are written down when it fails.

    `hangs`: it never ends by itself. `blocks`: what its child has fetched besides waits until then.
    """

    name: str
    state: str
    attempts: int = 2
    recoveries: int = 0
    hangs: bool = False
    blocks: bool = False


EATS_MEMORY: Final = Case("eats.memory", "failed")
CASES: Final = [
    Case("raises", "failed"),
    Case("exits", "failed"),
    Case("recurses", "failed"),
    EATS_MEMORY,
    Case("grows", "done"),
    Case("dies", "failed", attempts=0, recoveries=4),
    Case("kills.itself", "failed", attempts=0, recoveries=4),
    Case("forks", "done"),
    Case("starts.threads", "done"),
    Case("hangs.in.C", "failed", hangs=True),
    Case("holds.the.GIL", "failed", hangs=True, blocks=True),
    Case("swallows", "failed", hangs=True),
    Case("sleeps", "failed", hangs=True),
    Case("grows.and.stays", "failed", hangs=True),
]
ASYNC_CASES: Final = [
    Case("leaves.tasks", "completed"),
    Case("leaves.a.stubborn.task", "done"),
    Case("awaits", "failed", hangs=True),
]
EXECUTORS: Final = [("inline", 1), ("threads", 4), ("event loop", 4)]


class Start(NamedTuple):
    """One start of a handler, in which process, and with which counts."""

    process_id: int
    attempt: int
    recoveries: int


class Run:
    """A worker with one executor, and what its handlers and its log say."""

    def __init__(self, client: DelayQ, folder: Path, executor: str, threads: int) -> None:
        self.client = client
        self.executor = executor
        self.places = threads
        self.cases = CASES + (ASYNC_CASES if executor == "event loop" else [])
        self.innocent = 0
        self.notes = folder / "notes"
        self.log = folder / "worker.log"

    def rounds(self) -> tuple[list[Case], list[Case]]:
        """Return the cases, those apart that leave too little memory for others beside them."""
        return [case for case in self.cases if case is not EATS_MEMORY], [EATS_MEMORY]

    def schedule(self, case: Case) -> None:
        """Schedule the job of a case, and innocent ones behind it."""
        specs = [JobSpec(name=case.name, id=case.name, queue="q")]
        specs += [JobSpec(name="innocent", id=f"innocent-{self.innocent + n}", queue="q") for n in range(INNOCENT)]
        self.innocent += INNOCENT
        self.client.schedule_many(specs)

    def lines(self, what: str) -> list[list[str]]:
        words = [line.split() for line in complete_lines(self.notes)]
        return [line[1:] for line in words if line[0] == what]

    def starts(self) -> dict[str, list[Start]]:
        """Return the starts of each job."""
        found: dict[str, list[Start]] = defaultdict(list)
        for job_id, *numbers in self.lines("started"):
            found[job_id].append(Start(*map(int, numbers)))
        return found

    def has_run_all_innocent(self) -> bool:
        return sum(job_id.startswith("innocent") for job_id in self.starts()) == self.innocent

    def is_settled(self) -> bool:
        (stats,) = self.client.stats("q")
        return not (stats.scheduled or stats.ready or stats.reserved)

    def check_case(self, case: Case, state: str, attempts: int) -> None:
        info = self.client.get(case.name, queue="q")
        if info is None:
            assert state == "done", case
            return
        assert info.state == state, case
        if state == "failed":
            # A job was charged with a recovery when another one ended its process, while it ran there or before its
            # failure was written down.
            recoveries = case.recoveries if self.places == 1 and case.recoveries else info.recoveries
            assert (info.attempts, info.recoveries) == (attempts, recoveries), case
            assert info.recoveries <= 4
        if state == "completed":
            ((_, cleaned_ms, *_),) = self.lines("cleaned")
            assert int(cleaned_ms) <= (info.forget_ms or 0) - HOUR_MS, "the job ended before its tasks"

    def check_innocent(self) -> None:
        """Check that innocent jobs ran once and were charged nothing, but for those that shared a process.

        Such a one was charged with a recovery for each start that did not end, and not for waiting. One job counts as
        started a moment before its handler notes it: a process that dies may take one that was just being read.
        """
        starts = [starts for job_id, starts in self.starts().items() if job_id.startswith("innocent")]
        assert len(starts) == self.innocent
        assert {start.attempt for each in starts for start in each} == {1}
        again = [each for each in starts if len(each) > 1]
        charged = sum(each[-1].recoveries for each in starts)
        log = self.log.read_text()
        deaths = len(re.findall(r"child process \d+ ended with", log))
        kills = len(re.findall(r"child process \d+ was killed", log))
        print(
            f"{self.executor}: {self.innocent} innocent jobs beside {len(self.cases)} others; {deaths} processes died, "
            f"{kills} were killed; of the innocent {len(again)} ran again, {charged} recoveries are charged"
        )
        assert sum(max(each[-1].recoveries + 1 - len(each), 0) for each in starts) <= (deaths if self.places > 1 else 0)
        beside = self.places - 1
        assert charged <= deaths * beside
        assert len(again) <= (deaths + kills) * beside


@contextmanager
def working(
    folder: Path, executor: str, threads: int, *, hang: str, limit: str, options: Sequence[str] = ()
) -> Iterator[Run]:
    """Run a worker for the block, and check that it ends in good order."""
    with private_server() as url, DelayQ(url) as client:
        run = Run(client, folder, executor, threads)
        environment = {
            **os.environ,
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "DELAYQ_URL": url,
            "HANDLERS_LOG": str(run.notes),
            "EXECUTOR": executor,
            "HANG": hang,
            "LIMIT": limit,
            "DELAYQ_LEASE": "2s",
        }
        words = [sys.executable, "-m", "delayq", "work", "--app", "tests.chaos.hostile_handlers", "--memory", "200"]
        with run.log.open("wb") as log:
            worker = subprocess.Popen(
                [*words, "--threads", str(threads), *options], cwd=folder, env=environment, stderr=log
            )
        try:
            yield run
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(timeout=60) == 0
        finally:
            worker.kill()
            worker.wait()


@pytest.mark.parametrize(("executor", "threads"), EXECUTORS)
def test_only_the_job_of_such_a_handler_suffers(executor: str, threads: int, tmp_path: Path) -> None:
    with working(tmp_path, executor, threads, hang="2s", limit="2s") as run:
        for cases in run.rounds():
            for case in cases:
                run.schedule(case)
            wait_until(run.is_settled, patience=150)
        for case in run.cases:
            run.check_case(case, case.state, case.attempts)
        run.check_innocent()


@pytest.mark.parametrize(("executor", "threads"), EXECUTORS)
def test_without_a_timeout_a_handler_that_hangs_is_ended_by_a_cancel(
    executor: str, threads: int, tmp_path: Path
) -> None:
    options = ("--processes", "2")
    with working(tmp_path, executor, threads, hang="0s", limit="0s", options=options) as run:
        for cases in run.rounds():
            for case in cases:
                if not case.hangs:
                    run.schedule(case)
            wait_until(run.is_settled, patience=60)
        for case in run.cases:
            if case.hangs:
                hang_until_cancelled(run, case)
        for case in run.cases:
            run.check_case(case, "done" if case.hangs else case.state, case.attempts)
        run.check_innocent()


def hang_until_cancelled(run: Run, case: Case) -> None:
    """Let innocent jobs run beside one that hangs, then cancel it."""
    run.schedule(case)
    wait_until(has_started(run, case), f"the start of {case.name}")
    # A handler that keeps the event loop to itself keeps also those that were started in it.
    if not case.blocks and (run.executor != "event loop" or case in ASYNC_CASES):
        wait_until(run.has_run_all_innocent, f"the innocent jobs beside {case.name}")
    assert run.client.cancel(case.name, queue="q", running=True) == "running"
    wait_until(run.is_settled, f"the end of {case.name}")


def has_started(run: Run, case: Case) -> Callable[[], bool]:
    return lambda: case.name in run.starts()
