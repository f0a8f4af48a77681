"""From the command `delayq work` to the start of a handler whose job has waited for it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from benchmarks.figures import Report, Row, Samples, Target
from benchmarks.plan import Plan
from benchmarks.rig import PATIENCE_S, quiet_logs, rig_on
from benchmarks.server import PrivateServer
from benchmarks.work import NAME as JOB
from benchmarks.work import QUEUE, specs

NAME = "start"
TARGET = Target("≤", 0.6)
APP: Final = f"""
import os, time
from delayq import job

@job({JOB!r})
def close(order_id: int, customer: str, total: str, note: str) -> None:
    began = time.clock_gettime(time.CLOCK_MONOTONIC)
    with open(os.environ["BENCH_STARTED"] + ".new", "w") as file:
        file.write(repr(began))
    os.rename(file.name, os.environ["BENCH_STARTED"])
"""


def run(plan: Plan) -> Report:
    """Each run is a process of its own, on the same server; the first one finds files that nobody has read yet."""
    with plan.server() as server, rig_on(server) as rig, quiet_logs(), tempfile.TemporaryDirectory() as home:
        Path(home, "bench_app.py").write_text(APP, encoding="utf-8")
        taken = []
        for number in range(plan.runs):
            rig.client.schedule_many(specs(1, start=number, delay=None))
            taken.append(_one(server, Path(home), Path(home, f"started{number}")))
    return Report([Row("from `delayq work` to the first handler", Samples(tuple(taken), "s"), target=TARGET)])


def _one(server: PrivateServer, home: Path, started: Path) -> float:
    """Seconds until the handler began."""
    paths = os.pathsep.join([str(home), *filter(None, sys.path)])
    env = {**os.environ, "PYTHONPATH": paths, "BENCH_STARTED": str(started)}
    words = ["-q", "--url", server.url, "work", "--app", "bench_app", "--queue", QUEUE]
    began = time.clock_gettime(time.CLOCK_MONOTONIC)
    worker = subprocess.Popen([sys.executable, "-m", "delayq", *words], env=env, stderr=subprocess.DEVNULL)
    try:
        while not started.exists():
            if time.clock_gettime(time.CLOCK_MONOTONIC) - began > PATIENCE_S:
                raise RuntimeError("no handler began")
            time.sleep(0.005)
        return float(started.read_text(encoding="utf-8")) - began
    finally:
        worker.terminate()
        worker.wait()
