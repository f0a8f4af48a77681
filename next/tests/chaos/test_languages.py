"""Producers in PHP, Node and Go, and consumers without delayq, beside a worker of delayq that is killed.

Each job runs once, or again after its process was killed. The figures are printed. LANGUAGE_JOBS says how many jobs
each producer schedules (default 1000).
"""

import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest
from typer.testing import CliRunner

from delayq import DelayQ
from delayq.cli import main as cli
from tests.consumers.programs import CONSUMERS, Program, Programs, go_build, node, npm_ci, optional, php
from tests.support.lines import complete_lines
from tests.support.servers import private_server
from tests.support.waiting import wait_until
from tests.support.workers import children_of, end_worker

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]

JOBS: Final = int(os.environ.get("LANGUAGE_JOBS", "1000"))
CANCELLED_BY_EACH: Final = JOBS // 20
RATE: Final = 100
"""Jobs that become ready in a second."""

KILL_EVERY: Final = 0.7
CUT_OFF: Final = 2.0
"""A run that began so many seconds before its process was killed may not have been settled."""

APP: Final = """
import os, time
from delayq import job

log = os.open("runs", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

@job("order.close", queue="orders")
def close(order_id: int) -> None:
    os.write(log, f"close-{order_id} {os.getpid()} {time.time()}\\n".encode())
    time.sleep(0.005)
"""


AGAIN: Final = """
const [, producer, command, ...orders] = process.argv;
for (const order of orders) {
  process.argv = ['node', producer, command, order];
  await import(`${producer}?${order}`);
}
"""


@dataclass
class Worker(threading.Thread):
    """A worker of delayq, with a thread that kills its processes and starts it again. `killed_at`: by process id."""

    folder: Path
    url: str
    random: random.Random
    killed_at: dict[int, float] = field(default_factory=dict)
    kills: int = 0

    def __post_init__(self) -> None:
        super().__init__(daemon=True)
        self.stopped = threading.Event()
        self._process = self._start()

    __hash__ = threading.Thread.__hash__

    def run(self) -> None:
        while not self.stopped.wait(KILL_EVERY):
            if self._process.poll() is not None:
                self._process = self._start()
            children = children_of(self._process.pid)
            if not children:
                continue
            self.kills += 1
            if self.kills % 10:
                self._kill(self.random.choice(children))
            else:
                for pid in (self._process.pid, *children):
                    self._kill(pid)

    def revive(self) -> None:
        if self._process.poll() is not None:
            self._process = self._start()

    def end(self) -> None:
        self.stopped.set()
        self.join()
        end_worker(self._process)

    def runs(self) -> list[tuple[str, int, float]]:
        """Return the id, the process and the time of each run."""
        path = self.folder / "runs"
        rows = [line.split() for line in complete_lines(path)]
        return [(job_id, int(pid), float(at)) for job_id, pid, at in rows]

    def _start(self) -> "subprocess.Popen[bytes]":
        words = [sys.executable, "-m", "delayq", "work", "--app", "app", "--queue", "orders", "--processes", "2"]
        environment = {
            **os.environ,
            "PYTHONPATH": str(CONSUMERS.parent),
            "DELAYQ_URL": self.url,
            "DELAYQ_TIDY_EVERY": "500ms",
        }
        with (self.folder / "worker.log").open("ab") as log:
            return subprocess.Popen(words, cwd=self.folder, env=environment, stderr=log)

    def _kill(self, pid: int) -> None:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        self.killed_at[pid] = time.time()


@contextmanager
def server_with_port() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with private_server(["--port", str(port), "--bind", "127.0.0.1"]):
        yield f"redis://127.0.0.1:{port}/0"


def producers_of(folder: Path) -> dict[str, list[str]]:
    """Return the commands of the producers whose languages are here."""
    found = {
        "php": optional(php),
        "node": optional(lambda: [node(), str(npm_ci(folder / "node") / "producer.mjs")]),
        "go": optional(lambda: [str(go_build(folder / "go"))]),
    }
    return {language: words for language, words in found.items() if words is not None}


def start_consumers(folder: Path, programs: Programs, *, has_node: bool) -> dict[str, Program]:
    plain = str(CONSUMERS / "plain_stream" / "consumer.py")
    found = {
        "XACK": programs.start(sys.executable, plain, "orders", "--name", "xack", log="xack"),
        "ack.lua": programs.start(sys.executable, plain, "orders", "--name", "ack", "--scripts", "lua", log="ack"),
    }
    if has_node:
        consumer = str(folder / "node" / "consumer.mjs")
        found["Node"] = programs.start(node(), consumer, "orders", "lua", "node", log="node")
    return found


def run_for_each(programs: Programs, language: str, producer: list[str], command: str, orders: range) -> list[str]:
    """Run a producer once for each order, and return its answers. Node starts slowly, so one process runs it again."""
    if language == "node":
        words = [producer[0], "--input-type=module", "--eval", AGAIN, "--", producer[1], command, *map(str, orders)]
    else:
        words = ["sh", "-c", 'for n in "$@"; do $PRODUCER $n; done', "sh", *map(str, orders)]
    return programs.run(*words, seconds=600, PRODUCER=" ".join([*producer, command])).split()


def in_threads(programs: Programs, producers: dict[str, list[str]], command: str, count: int) -> dict[str, list[str]]:
    """Let all producers schedule or cancel their first orders at the same time. Return their answers."""
    answers: dict[str, list[str]] = {}

    def one(n: int, language: str) -> None:
        orders = range(n * JOBS, n * JOBS + count)
        answers[language] = run_for_each(programs, language, producers[language], command, orders)

    threads = [threading.Thread(target=one, args=(n, language)) for n, language in enumerate(producers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def listed(q: DelayQ) -> set[str]:
    return {job.id for job in q.iter_jobs("scheduled")}


def run_and_cancel(q: DelayQ, ids: list[str]) -> dict[str, str]:
    """Make jobs ready, ten at a time, and cancel the last of the ten. Return the answers of `cancel`."""
    answers: dict[str, str] = {}
    began = time.monotonic()
    for number, job_id in enumerate(ids, start=1):
        q.run_now(job_id)
        if number % 10 == 0:
            answers[job_id] = q.cancel(job_id)
            time.sleep(max(began + number / RATE - time.monotonic(), 0))
    return answers


def is_empty(q: DelayQ) -> bool:
    (stats,) = q.stats("orders")
    return not stats.scheduled + stats.ready + stats.reserved


def test_producers_and_consumers_of_all_languages_agree(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    with server_with_port() as url, DelayQ(url, queue="orders") as q, ExitStack() as stack:
        assert CliRunner().invoke(cli.app, ["scripts", "export", str(tmp_path / "lua")]).exit_code == 0
        programs = Programs(tmp_path, url, stack)
        producers = producers_of(tmp_path)
        began = time.monotonic()
        created = in_threads(programs, producers, "schedule", JOBS)
        assert created == {language: ["created"] * JOBS for language in producers}
        everything = {f"close-{n}" for n in range(JOBS * len(producers))}
        assert listed(q) == everything
        cancelled = in_threads(programs, producers, "cancel", CANCELLED_BY_EACH)
        assert cancelled == {language: ["cancelled"] * CANCELLED_BY_EACH for language in producers}
        left = everything - {f"close-{n * JOBS + k}" for n in range(len(producers)) for k in range(CANCELLED_BY_EACH)}
        assert listed(q) == left
        took = time.monotonic() - began

        q.queue_set("orders", lease="2s")
        consumers = start_consumers(tmp_path, programs, has_node="node" in producers)
        worker = Worker(tmp_path, url, random.Random(1))
        stack.callback(worker.end)
        worker.start()
        ids = sorted(left)
        random.Random(2).shuffle(ids)
        answers = run_and_cancel(q, ids)
        worker.stopped.set()
        worker.join()
        worker.revive()
        wait_until(lambda: is_empty(q), "the end of all jobs", patience=60)
        (stats,) = q.stats("orders")
        outside = {name: [line.split()[1] for line in one.lines] for name, one in consumers.items()}
        runs = worker.runs()
    print_and_check(set(ids), answers, outside, runs, worker)
    assert (stats.failed, stats.completed) == (0, 0)
    print(f"  {sorted(producers)} made {len(everything)} jobs in {took:.0f} s; load {os.getloadavg()[0]:.1f}")


def print_and_check(
    ids: set[str],
    answers: dict[str, str],
    outside: dict[str, list[str]],
    runs: list[tuple[str, int, float]],
    worker: Worker,
) -> None:
    counts = Counter(job_id for job_id, _, _ in runs) + sum((Counter(ran) for ran in outside.values()), Counter())
    cut_off = {job_id for job_id, pid, at in runs if 0 <= worker.killed_at.get(pid, 0.0) - at <= CUT_OFF}
    wanted = ids - {job_id for job_id, answer in answers.items() if answer == "cancelled"}
    twice = {job_id for job_id, count in counts.items() if count > 1}
    by_whom = {"the worker": len(runs), **{name: len(ran) for name, ran in outside.items()}}
    print(f"\n{len(wanted)} jobs, {worker.kills} kills; runs: {by_whom}; `cancel`: {dict(Counter(answers.values()))}")
    print(f"  {len(wanted - set(counts))} lost, {len(set(counts) - wanted)} ran although they were cancelled")
    print(f"  {len(twice)} ran again: {len(twice & cut_off)} after a kill, {len(twice - cut_off)} without")
    for job_id in sorted(twice - cut_off):
        by = [name for name, ran in outside.items() if job_id in ran]
        print(f"  {job_id} ran by {by}, and by the worker: {[run for run in runs if run[0] == job_id]}")
    assert set(counts) == wanted
    assert not twice - cut_off
    assert min(by_whom.values()) > 0
