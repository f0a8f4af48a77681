"""Tests that measure time, on a machine that others use too.

`@pytest.mark.timed` says of a test: what it asserts is promised on a machine that lets run who wants to run. When it
fails *and* the machine did not, because it stood still as a whole or others queued for its processors, the failure
proves nothing, and the test is run again; twice at most. A failure on a machine that had time counts at once.

What was run again is told at the end of the session, with the reason: nothing is forgiven in silence.

Promises in seconds are measured with `fair_clock` and `wait_fairly`: time in which tasks queued does not count.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import pytest
from _pytest.runner import runtestprotocol

from tests.support.waiting import LONGEST_WAIT_S, wait_until

RUNS = 3
STILL_S = 0.2
CROWDED = 0.5
TIMEOUT_S = 180
PATIENCE_S = 20.0
AGAIN = "run again"

T = TypeVar("T")

_CANARY: Final = pytest.StashKey["Canary"]()

# Wakes up a hundred times a second, and tells when it is asked for how long, since it was last asked, it was not let do
# so. Ends with its input. A process, because a thread would be kept waiting by the test itself.
CANARY = """
import os, select, signal, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
longest, last = 0.0, time.monotonic()
while True:
    asked = select.select([0], [], [], 0.01)[0]
    now = time.monotonic()
    longest, last = max(longest, now - last - 0.01), now
    if asked:
        if not os.read(0, 1):
            break
        os.write(1, b"%f\\n" % longest)
        longest = 0.0
"""


@dataclass(frozen=True, slots=True)
class Spell:
    """How the machine was for a while."""

    still_s: float
    """The longest time in which a process that wanted to run was not let."""
    crowded: float
    """The share of the time in which tasks queued for a processor or a disk; 0 where the kernel does not tell."""

    def __str__(self) -> str:
        return f"it stood still for {self.still_s:.2f} s, and was crowded for {self.crowded:.0%} of the time"

    @property
    def fair(self) -> bool:
        """Whether a test that measures time could count on the machine."""
        return self.still_s < STILL_S and self.crowded < CROWDED


class Canary:
    """Watches the machine."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", CANARY], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._at, self._queued_s = time.monotonic(), _queued_s()

    def spell(self) -> Spell:
        """How the machine was since this was last asked."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b"?")
        self._process.stdin.flush()
        still_s = float(self._process.stdout.readline())
        before, queued_before = self._at, self._queued_s
        self._at, self._queued_s = time.monotonic(), _queued_s()
        return Spell(still_s, min(1.0, (self._queued_s - queued_before) / (self._at - before)))

    def close(self) -> None:
        """End it."""
        with self._process:
            assert self._process.stdin is not None
            self._process.stdin.close()


def canary_of(config: pytest.Config) -> Canary:
    """The one of this process: made for the first test that is timed, ended with the session."""
    if _CANARY not in config.stash:
        config.stash[_CANARY] = Canary()
        config.add_cleanup(config.stash[_CANARY].close)
    return config.stash[_CANARY]


def run_fairly(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Run one test, again if need be, and report its last run."""
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    canary, own = canary_of(item.config), list(item.user_properties)
    canary.spell()
    left = RUNS
    while True:
        left -= 1
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
        spell = canary.spell()
        if not left or spell.fair or not any(report.failed for report in reports):
            break
        own.append((AGAIN, f"{item.nodeid}: {spell}\n{_reasons(reports)}"))
        item.user_properties[:] = own
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)


def _reasons(reports: list[pytest.TestReport]) -> str:
    """The first failure's last lines."""
    text = next(report.longreprtext for report in reports if report.failed)
    return "\n".join(f"    {line}" for line in text.splitlines() if line.startswith("E "))


def fair_clock() -> float:
    """Seconds that go by only while nobody on this machine waits for a processor or a disk.

    What is to happen within a second happens within a second of these, however many others want to run.
    """
    return time.monotonic() - _queued_s()


def wait_fairly(predicate: Callable[[], T], *, within: float, what: str = "the condition") -> T:
    """Wait until it holds, and fail when that took longer than `within` seconds of the fair clock."""
    began = fair_clock()
    answer = wait_until(predicate, timeout=within + PATIENCE_S, what=what)
    took = fair_clock() - began
    assert took <= within + LONGEST_WAIT_S, f"{what}: after {took:.2f} s, promised within {within:g} s"
    return answer


def _queued_s() -> float:
    """For how long, since the machine was started, some task has waited for a processor, or some for a disk."""
    return max(_total_s(Path("/proc/pressure/cpu")), _total_s(Path("/proc/pressure/io")))


def _total_s(path: Path) -> float:
    try:
        some = path.read_text().splitlines()[0]
    except OSError:  # not Linux, or a kernel that does not count
        return 0.0
    return int(some.rpartition("total=")[2]) / 1_000_000
