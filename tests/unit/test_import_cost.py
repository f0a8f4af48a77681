"""`import delayq` costs next to nothing, and declaring jobs little."""

from __future__ import annotations

import subprocess
import sys

import pytest

CLOCKED = "import time; begun = time.perf_counter(); {}; print(time.perf_counter() - begun)"


@pytest.mark.parametrize("words", ["import delayq", "from delayq import Job, JobContext, dispatch, job"])
def test_it_takes_at_most_150_ms(words: str) -> None:
    """The best of five: a busy machine may slow down any one of them."""
    program = [sys.executable, "-c", CLOCKED.format(words)]
    runs = [subprocess.run(program, capture_output=True, text=True, check=True).stdout for _ in range(5)]
    assert min(map(float, runs)) <= 0.150
