"""`import delayq` costs next to nothing; what declaring jobs loads is held by tests/unit/jobs/test_job_classes.py."""

from __future__ import annotations

import subprocess
import sys

CLOCKED = "import time; begun = time.process_time(); import delayq; print(time.process_time() - begun)"


def test_it_takes_at_most_150_ms() -> None:
    """Of processor time, and the best of five: a busy machine may slow down any one of them."""
    program = [sys.executable, "-c", CLOCKED]
    runs = [subprocess.run(program, capture_output=True, text=True, check=True).stdout for _ in range(5)]
    assert min(map(float, runs)) <= 0.150
