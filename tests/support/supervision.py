"""A worker with a supervisor, in a process of its own, and what a test wants to know of it.

house.schedule("good", "g1", seconds=2)      a job, due now
with house.open(kill_after_ms=400) as shop:  the worker; it is killed at the end of the block if it still runs
shop.signal(signal.SIGTERM); shop.ended()    its exit code; how long that took is `shop.took_s`, by the fair clock
house.starts("g1")                           how often, and in which processes, a handler began
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from delayq.core.options import Options
from delayq.core.states import State
from delayq.core.views import JobInfo
from delayq.redis.client import Client
from delayq.redis.connect import Connector
from delayq.redis.keys import Globals
from tests.support.machine import fair_clock
from tests.support.waiting import wait_until

QUEUE = "default"
PATIENCE_S = 20.0


class Shop:
    """One running worker."""

    def __init__(self, command: Sequence[str], environment: dict[str, str], errors: Path) -> None:
        self.errors = errors
        self.took_s = 0.0
        self._printed = b""
        with errors.open("ab") as stderr:
            self._process = subprocess.Popen(
                command, env=environment, stdout=subprocess.PIPE, stderr=stderr, stdin=subprocess.DEVNULL
            )

    @property
    def pid(self) -> int:
        """Of the program that was started."""
        return self._process.pid

    def signal(self, *numbers: signal.Signals) -> None:
        """Send signals, one after another."""
        for number in numbers:
            self._process.send_signal(number)

    def ended(self, timeout: float = PATIENCE_S) -> int:
        """Wait for the end; the exit code."""
        began = fair_clock()
        try:
            code = self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the worker has not ended within {timeout:g} s:\n{self.said()}") from None
        self.took_s = fair_clock() - began
        return code

    def reason(self) -> str:
        """What it printed when it had ended."""
        self.close()
        return self._printed.decode().strip()

    def said(self) -> str:
        """What it logged so far."""
        return self.errors.read_text(errors="replace")

    def alive(self) -> bool:
        """Whether it runs."""
        return self._process.poll() is None

    def close(self) -> None:
        """Kill it if it runs."""
        if self.alive():
            self._process.kill()
        self._process.wait()
        if self._process.stdout is not None and not self._process.stdout.closed:
            self._printed = self._process.stdout.read()
            self._process.stdout.close()


class House:
    """A server's url, a client, and a ledger that the handlers write."""

    def __init__(self, url: str, folder: Path, lease_ms: int = 5_000) -> None:
        self.url = url
        self.lease_ms = lease_ms
        self.ledger = folder / "ledger"
        self.ledger.touch()
        self._errors = folder / "stderr"
        self._connector = Connector(url)
        self.client = Client(self._connector, Options(lease_ms=lease_ms))

    def close(self) -> None:
        """Close the connections."""
        self._connector.close()

    @contextmanager
    def open(self, *, before: Sequence[str] = (), **config: Any) -> Iterator[Shop]:
        """A worker; `before` are words in front of the program's (`unshare …`)."""
        given = {"url": self.url, "lease_ms": self.lease_ms, "tidy_every_ms": 300, **config}
        command = [*before, sys.executable, "-m", "tests.support.supervised", json.dumps(given)]
        shop = Shop(command, {**os.environ, "LEDGER": str(self.ledger)}, self._errors)
        try:
            yield shop
        finally:
            shop.close()
            wait_until(lambda: not self.processes(), what="nobody is left behind")

    def schedule(self, name: str, *ids: str, **data: Any) -> None:
        """Jobs that are due now."""
        self.client.schedule_many([{"name": name, "id": job_id, "data": data or None, "delay": "0s"} for job_id in ids])

    def let_go(self) -> None:
        """Let those handlers go on that wait for it."""
        self.ledger.with_name("go").touch()

    def order_silently(self, worker: str, order: str, keep_ms: int) -> None:
        """Leave an order for a worker with nobody being told."""
        self._connector.commands().set(Globals("delayq").order(worker), order, px=keep_ms)

    def order_kept_ms(self, worker: str) -> int:
        """How long a worker's order is kept still."""
        return int(self._connector.commands().pttl(Globals("delayq").order(worker)))

    def ask_silently(self, job_id: str) -> None:
        """Ask a running job to stop with nobody being told: the wish lies there for who looks."""
        self._connector.commands().hset(f"delayq:{{{QUEUE}}}:cancel", job_id, "1")

    def rows(self, word: str, job_id: str | None = None) -> list[list[str]]:
        """Lines of the ledger: word, job, process, time."""
        rows = [line.split() for line in self.ledger.read_text().splitlines(keepends=True) if line.endswith("\n")]
        return [row for row in rows if row[0] == word and job_id in (None, row[1])]

    def starts(self, job_id: str) -> list[int]:
        """The processes in which the job began, in order."""
        return [int(row[2]) for row in self.rows("start", job_id)]

    def until_started(self, job_id: str, times: int = 1, timeout: float = PATIENCE_S) -> int:
        """Wait until a job has begun that often; the process in which it did last."""
        wait_until(lambda: len(self.starts(job_id)) >= times, timeout=timeout, what=f"{job_id} has begun {times} times")
        return self.starts(job_id)[-1]

    def job(self, job_id: str) -> JobInfo:
        """A job that must be there."""
        info = self.client.get(job_id)
        assert info is not None, f"{job_id} is not there"
        return info

    def state(self, job_id: str) -> State:
        """Where a job is."""
        info = self.client.get(job_id)
        return info.state if info else State.ABSENT

    def until(self, job_id: str, state: State, timeout: float = PATIENCE_S) -> None:
        """Wait until a job is in that state."""
        wait_until(lambda: self.state(job_id) is state, timeout=timeout, what=f"{job_id} is {state}")

    def until_gone(self, *ids: str, timeout: float = PATIENCE_S) -> None:
        """Wait until none of the jobs is there."""
        left = list(ids)
        key = f"delayq:{{{QUEUE}}}:jobs"

        def gone() -> bool:
            return not any(self._connector.commands().hmget(key, left))

        wait_until(gone, timeout=timeout, what=f"{len(ids)} jobs are gone")

    def counter(self, name: str) -> int:
        """One of the queue's counters."""
        [stats] = self.client.stats(QUEUE)
        return stats.counters[name]

    def processes(self) -> list[int]:
        """Every process of this house's workers that lives, by the environment they share."""
        return living_with(self.ledger)


def living_with(ledger: Path) -> list[int]:
    """Every process that lives and writes that ledger."""
    mark = f"LEDGER={ledger}".encode()
    folders = [folder for folder in Path("/proc").iterdir() if folder.name.isdigit()]
    return [int(folder.name) for folder in folders if _is_marked(folder, mark)]


def _is_marked(folder: Path, mark: bytes) -> bool:
    try:
        if (folder / "stat").read_text().rpartition(")")[2].split()[0] == "Z":
            return False
        return mark in (folder / "environ").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return False
