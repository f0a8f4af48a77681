"""The jobs of the benchmarks, as an application declares them. The same text serves both editions."""

import os
import sys
import time
from types import FrameType
from typing import Any

from delayq import job

OUT = os.environ.get("BENCH_OUT", os.devnull)
"""The file that takes what handlers find out, a number a line."""

COUNTED_JOBS = 2_000


class CallCounter:
    """Counts the calls of Python and C functions in the thread that runs jobs, from one job to a later one."""

    def __init__(self) -> None:
        self.jobs = 0
        self.calls = 0

    def job(self) -> None:
        """Take note of one job. Jobs 1,000 to 3,000 are counted: by then a child works as it does for long."""
        self.jobs += 1
        if self.jobs == 1_000:
            sys.setprofile(self.count)
        elif self.jobs == 1_000 + COUNTED_JOBS:
            sys.setprofile(None)
            _write(self.calls / COUNTED_JOBS)

    def count(self, frame: FrameType, event: str, argument: Any) -> None:
        """Count a call; the interpreter calls this one."""
        if event in ("call", "c_call"):
            self.calls += 1


_counter = CallCounter()
_file = open(OUT, "a", buffering=1)  # noqa: SIM115 - open as long as the process lives


def _write(number: float) -> None:
    _file.write(f"{number:.6f}\n")


@job("noop")
def noop(text: str) -> None:
    """Do nothing."""


@job("stamp")
def stamp(at: float) -> None:
    """Write the seconds between `at`, which is a time by the same clock, and now."""
    _write(time.time() - at)


@job("counted")
def counted(text: str) -> None:
    """Do nothing but be counted."""
    _counter.job()
