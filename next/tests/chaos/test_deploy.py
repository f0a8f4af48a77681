"""A rolling deploy: jobs of the new release meet workers of the old one for a while. DEPLOY_SECONDS says how long.

A job that a worker cannot read waits for half of its age, a fifth more at random, and 10 min at most. So it starts with
the new workers when that wait is over, and not at once: after 150 s of deploy it may have 90 s to go.
"""

import os
import random
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from delayq import DelayQ, JobInfo, JobSpec
from delayq.core.envelope import UNKNOWN_SINCE
from tests.chaos.test_kills import Run, counted
from tests.support.servers import private_server
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]

SECONDS: Final = float(os.environ.get("DEPLOY_SECONDS", "150"))
JOBS: Final = 60

OLD: Final = """
import os
from delayq import job

log = os.open(os.environ["CHAOS_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)

def note(number):
    import time
    os.write(log, f"{number} {time.time()}\\n".encode())

@job("mail", queue="q", tries=2)
def mail(number: int) -> None:
    note(number)
"""

NEW: Final = (
    OLD.replace("number: int", 'number: int, locale: str = "en"')
    + """
@job("text", queue="q", tries=2)
def text(number: int) -> None:
    note(number)
"""
)


@dataclass(frozen=True)
class Waiting:
    """A job that old workers could not read: when they met it first, and when its wait is over, in seconds."""

    number: int
    attempts: int | None
    since: float
    due: float

    @classmethod
    def of(cls, job: JobInfo) -> "Waiting":
        assert job.envelope is not None
        since = int((job.envelope.headers or {})[UNKNOWN_SINCE]) / 1000
        return cls(job.data["number"], job.attempts, since, (job.due_ms or 0) / 1000)


def test_jobs_of_a_new_release_wait_for_its_workers(tmp_path: Path) -> None:
    application = tmp_path / "chaos_app.py"
    application.write_text(OLD)
    with private_server() as url, DelayQ(url) as client:
        run = Run(tmp_path, url, random.Random(1))
        try:
            run.start_worker(threads=1)
            kinds: list[tuple[str, dict[str, object]]] = [("mail", {}), ("mail", {"locale": "fr"}), ("text", {})]
            specs = [
                JobSpec(name=name, data={"number": n, **more}, queue="q", delay=f"{n * 500}ms")
                for n, (name, more) in enumerate(kinds * (JOBS // len(kinds)))
            ]
            client.schedule_many(specs)
            time.sleep(SECONDS)
            (stats,) = client.stats("q")
            assert (len(run.starts()), stats.failed, counted(client)) == (JOBS // 3, 0, JOBS * 2 // 3)
            waiting = [Waiting.of(job) for job in client.iter_jobs("scheduled", queue="q")]
            assert {one.attempts for one in waiting} == {0}
            run.stop()
            application.write_text(NEW)
            run.start_worker(threads=1)
            deployed_at = time.time()
            wait_until(lambda: counted(client) == 0, "the end of all jobs", patience=120)
            (stats,) = client.stats("q")
        finally:
            run.stop()
        starts = run.starts()
        assert sorted(starts) == list(range(JOBS))
        assert all(len(times) == 1 for times in starts.values())
        assert all(starts[one.number][0] >= one.due for one in waiting)
        last = max(waiting, key=lambda one: one.due)
        lates = [starts[one.number][0] - max(one.due, deployed_at) for one in waiting]
        print(
            f"{stats.counters['released']} releases, 0 failures in {SECONDS:g} s of deploy; all {JOBS} jobs ran once, "
            f"{len(waiting)} of them with the new workers"
        )
        age, late = last.due - last.since, starts[last.number][0] - deployed_at
        print(
            f"the last job started {late:.0f} s after the deploy, {age:.0f} s old: an old worker looked at it when it "
            f"was {age / 1.6:.0f} to {age / 1.5:.0f} s old; it waits half of that age and up to a fifth more"
        )
        print(f"jobs started {min(lates):.2f} to {max(lates):.2f} s after their wait was over")
