"""Cancels against runs: is there a job that was cancelled and ran all the same, or one that did neither?

    python -m benchmarks.race            10,000 jobs; `make race`
    python -m benchmarks.race 100000

Jobs fall due while they are cancelled, in a drawn order, so that many calls meet the job on its way to the worker.
"""

import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Final

from delayq import DelayQ, JobSpec
from tests.support.servers import private_server

ROUND: Final = 1_000
"""Jobs that fall due within `WINDOW_MS` and are cancelled in the same time."""
WINDOW_MS: Final = 400
PATIENCE: Final = 60.0


def main(jobs: int) -> int:
    """Run the race and print who won how often; 1 when a job both ran and was cancelled, or was lost."""
    answers: dict[str, str] = {}
    with private_server() as url, tempfile.TemporaryDirectory() as folder, DelayQ(url) as client:
        notes = Path(folder) / "ran"
        notes.touch()
        words = [sys.executable, "-m", "delayq", "--url", url, "work", "--app", "benchmarks.race_jobs", "--quiet"]
        worker = subprocess.Popen(
            [*words, "--processes", "2", "--queue", "race"], env={**os.environ, "RACE_NOTES": str(notes)}
        )
        try:
            for start in range(0, jobs, ROUND):
                answers |= _run_round(client, start)
                print(f"{len(answers):,} of {jobs:,}", end="\r", file=sys.stderr, flush=True)
            _wait_until_idle(client)
        finally:
            worker.terminate()
            worker.wait()
        ran = Counter(notes.read_text().split())
    cancelled = {job for job, answer in answers.items() if answer == "cancelled"}
    both, lost = cancelled & ran.keys(), answers.keys() - cancelled - ran.keys()
    twice = sum(times > 1 for times in ran.values())
    print(f"jobs {len(answers):,}  cancelled {len(cancelled):,}  ran {len(ran):,}  ran twice {twice}")
    print(f"cancelled and ran: {len(both)}  neither: {len(lost)}")
    return int(bool(both or lost or twice))


def _run_round(client: DelayQ, start: int) -> dict[str, str]:
    """Schedule jobs that fall due soon, and cancel them meanwhile."""
    ids = [f"race-{number}" for number in range(start, start + ROUND)]
    specs = [
        JobSpec(name="race", data={"id": id}, id=id, queue="race", delay=f"{random.randrange(WINDOW_MS)}ms")
        for id in ids
    ]
    client.schedule_many(specs)
    random.shuffle(ids)
    return {id: client.cancel(id, queue="race") for id in ids}


def _wait_until_idle(client: DelayQ) -> None:
    deadline = time.monotonic() + PATIENCE
    while (stats := client.stats("race")[0]).scheduled + stats.ready + stats.reserved:
        if time.monotonic() > deadline:
            raise TimeoutError(f"jobs are left after {PATIENCE:g} s: {stats}")
        time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000))
