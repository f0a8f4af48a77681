"""Processes die and freeze while thousands of jobs are under way; the ledger tells what really happened.

The smoke tier runs with the suite. `DELAYQ_CHAOS=full` (`make chaos`) is the one the README's figures come from. Every
run prints its seed; `--seed N` (or DELAYQ_SEED) plays it again, as far as a scheduler of processes can be played again.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.chaos_oracle import judge
from tests.support.chaos_rig import Rig, Size
from tests.support.crew import Crew, Duty
from tests.support.servers import OwnServer, connect

pytestmark = [pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.timed]

FULL = os.environ.get("DELAYQ_CHAOS", "") == "full"
SIZE = Size(jobs=10_000, seconds=60.0, longest_ms=20) if FULL else Size(jobs=2_000, seconds=12.0, longest_ms=12)
KILL_EVERY_S = 0.2
# Four kills may hit one job by chance; what is tested here is that nothing is lost, and the cap has its own test.
NO_CAP = 1_000

MakeRig = Callable[[int], Rig]


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    given = request.config.getoption("--seed") or os.environ.get("DELAYQ_SEED")
    return int(given) if given is not None else random.SystemRandom().randrange(10**6)


@pytest.fixture
def rig(own_server: OwnServer, tmp_path: Path, seed: int) -> Iterator[MakeRig]:
    """Makes a run with a lease of so many milliseconds."""
    server = own_server()
    with connect(server.url) as client:
        crews: list[Crew] = []

        def make(lease_ms: int) -> Rig:
            duty = Duty(url=server.url, folder=tmp_path, lease_ms=lease_ms, tidy_every_ms=1_000, max_recoveries=NO_CAP)
            crews.append(Crew(duty))
            return Rig(crews[-1], client, seed, SIZE)

        yield make
        for crew in crews:
            crew.__exit__(None, None, None)


def test_kill_minus_nine_loses_nothing(rig: MakeRig, record_property: Callable[[str, object], None]) -> None:
    """Duplicates are at most the jobs that the killed held, counted in Redis at the moment of each death."""
    run = rig(2_000)
    run.kill_now_and_then(KILL_EVERY_S, at_least=int(SIZE.seconds / KILL_EVERY_S / 2))
    run.finish()
    verdict = judge(run.client, run.keys, run.jobs(), run.log, run.crew.ledger)
    record_property(
        "chaos",
        f"kill -9, seed {run.seed}: {verdict.asked} jobs ({verdict.unknown} with an unknown answer), "
        f"{run.struck} kills, {run.held} jobs held by the killed, {verdict.run_twice} run again, {verdict.lost} lost",
    )
    assert verdict.wrong == []
    assert verdict.lost == 0
    assert verdict.run_twice <= run.held


def test_a_thawed_process_changes_nothing(rig: MakeRig, record_property: Callable[[str, object], None]) -> None:
    """Frozen for three leases. What it had not started it leaves alone; what it finishes late is fenced, each time."""
    run = rig(1_000)
    run.freeze_now_and_then(every_s=0.7, for_s=3.0, at_least=5)
    run.finish()
    verdict = judge(run.client, run.keys, run.jobs(), run.log, run.crew.ledger)
    fences = run.crew.logs().count("it was taken back meanwhile")
    acked = int(run.client.hget(run.keys.meta, "acked_total") or 0)
    record_property(
        "chaos",
        f"SIGSTOP, seed {run.seed}: {verdict.asked} jobs, {run.struck} freezes of three leases, "
        f"{verdict.run_twice} run again, {verdict.ended_twice} ended again, {fences} fenced, {verdict.lost} lost",
    )
    assert verdict.wrong == []
    assert verdict.lost == 0
    assert acked == verdict.done, "every job was settled once, by whoever owned it"
    assert verdict.ended_twice <= fences, "no second end without a fence"
