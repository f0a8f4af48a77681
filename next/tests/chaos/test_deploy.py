"""A rolling deploy: jobs of the new release meet workers of the old one for a while. DEPLOY_SECONDS says how long."""

import os
import random
import time
from pathlib import Path
from typing import Final

import pytest

from delayq import DelayQ, JobSpec
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
        last = max(times[0] for times in starts.values()) - deployed_at
        print(f"{stats.counters['released']} releases in {SECONDS:g} s; the last job ran {last:.0f} s after the deploy")
