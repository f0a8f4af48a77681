"""Workers and movers are killed or frozen at random while jobs are under way.

Two tiers: what CI runs takes about a minute in all; `make chaos` (DELAYQ_CHAOS=full) is the size the promise speaks
of. The seed is printed; DELAYQ_SEED=… gives it again.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from delayq.core.options import Options
from delayq.redis.client import Client
from delayq.redis.connect import Connector
from delayq.redis.keys import Keys
from tests.support.chaos_ledger import Ledger
from tests.support.nemesis import Nemesis
from tests.support.nursery import QUEUE
from tests.support.rule_one import look
from tests.support.servers import OwnServer
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(300)]

FULL = os.environ.get("DELAYQ_CHAOS") == "full"
WORK_MS = 20
WORKERS = 4
MOVERS = 2
STEP_S = 0.2


@dataclass(frozen=True, slots=True)
class Size:
    jobs: int
    seconds: float


KILLS = Size(10_000, 60.0) if FULL else Size(1_500, 10.0)
FREEZES = Size(10_000, 60.0) if FULL else Size(1_500, 10.0)


@dataclass(frozen=True, slots=True)
class Run:
    """One run: the ledger, the ids that were accepted, and whom it hit."""

    ledger: Ledger
    accepted: list[str]
    client: Client
    harm: int
    held_by_victims: int


def test_kills_lose_nothing(own_server: OwnServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = _run(own_server, tmp_path, KILLS, lease_ms=2_000, harm=lambda nemesis: nemesis.kill_one(), say=capsys)

    assert set(run.accepted) - set(run.ledger.ends()) == set()
    assert set(run.ledger.ends()) <= set(run.accepted)
    assert run.ledger.duplicates() <= run.held_by_victims
    assert run.ledger.attempts() == {1}  # a vanished worker costs no attempt
    assert run.harm >= KILLS.seconds / STEP_S / 2


def test_a_thawed_worker_changes_nothing(
    own_server: OwnServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lease_ms = 1_000

    def harm(nemesis: Nemesis) -> None:
        nemesis.thaw()
        nemesis.freeze_one(3 * lease_ms / 1000)

    run = _run(own_server, tmp_path, FREEZES, lease_ms=lease_ms, harm=harm, say=capsys)

    assert set(run.ledger.ends()) == set(run.accepted)
    assert run.ledger.duplicates() <= run.held_by_victims
    assert run.ledger.attempts() == {1}
    # The result kept is the one of the last start: whoever was frozen and came back late changed nothing.
    results = {info.id: run.client.get(info.id, queue=QUEUE) for info in run.client.iter_jobs("completed", queue=QUEUE)}
    assert {job_id: info.result for job_id, info in results.items() if info} == run.ledger.last_tokens()
    assert run.harm > 0


def _run(
    own_server: OwnServer,
    tmp_path: Path,
    size: Size,
    *,
    lease_ms: int,
    harm: Callable[[Nemesis], None],
    say: pytest.CaptureFixture[str],
) -> Run:
    server, path = own_server(), tmp_path / "ledger"
    path.touch()
    client = Client(Connector(server.url), Options(lease_ms=lease_ms))
    with Nemesis([server.url, str(path), str(lease_ms), str(WORK_MS)], lambda pid: _held(client, pid)) as nemesis:
        for role in ["worker"] * WORKERS + ["mover"] * MOVERS:
            nemesis.start(role)
        spread_ms = size.seconds * 1000 / size.jobs
        refs = client.schedule_many(
            {"name": "chaos.step", "data": {"n": n}, "queue": QUEUE, "delay": f"{int(n * spread_ms)}ms"}
            for n in range(size.jobs)
        )
        end = time.monotonic() + size.seconds
        while time.monotonic() < end:
            harm(nemesis)
            time.sleep(STEP_S)  # the rhythm of the harm, not a wait for anything
        nemesis.thaw(all_of_them=True)
        wait_until(lambda: _over(client, size.jobs), timeout=60 + size.seconds, what="every job is over")
    queue = look(client.connector.commands(), Keys("delayq", QUEUE))
    assert queue.sums["stream"] == queue.sums["entries"] == 0
    assert queue.sums["placed"] == queue.sums["jobs"] == size.jobs
    ledger = Ledger.read(path)
    with say.disabled():
        sys.stdout.write(
            f"\nseed {nemesis.seed}: {size.jobs} jobs, {nemesis.killed} hit, {nemesis.held_by_victims} held by them, "
            f"{size.jobs - len(ledger.ends())} lost, {ledger.duplicates()} duplicates\n"
        )
    accepted = [ref.id for ref in refs]
    return Run(ledger, accepted, client, nemesis.killed, nemesis.held_by_victims)


def _held(client: Client, pid: int) -> int:
    """How many entries the group holds for the consumers of that process."""
    redis: Any = client.connector.commands()
    rows = redis.xinfo_consumers(Keys("delayq", QUEUE).stream, "delayq")
    return sum(int(row["pending"]) for row in rows if f":{pid}:".encode() in row["name"])


def _over(client: Client, jobs: int) -> bool:
    [stats] = client.stats(QUEUE)
    return stats.completed + stats.failed == jobs
