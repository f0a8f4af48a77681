"""Many jobs: a million of them without any fault, and a herd that falls due in one millisecond."""

from __future__ import annotations

import multiprocessing
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from delayq.redis.client import Client
from delayq.redis.keys import Keys
from tests.chaos.engine import Lot, Tally, spread
from tests.chaos.world import client_of, crew, server
from tests.support.chaos_rig import QUEUE
from tests.support.crew import whole
from tests.support.ledger import Ledger
from tests.support.rule_one import broken
from tests.support.servers import connect
from tests.support.waiting import wait_until

AT_ONCE = 500
GROWTH_KB = 5_000
SLOW_US = 10_000
PING_MS = 20.0
DELAYS = ("0s", "400ms", "1500ms", "3s")


def million(lot: Lot) -> Tally:
    """Some due now, some soon; every one of them once, none before its time."""
    with server() as one, crew(lot, one.url, lease_ms=30_000) as members, client_of(members) as client:
        members.hire()
        members.hire()
        dues: dict[str, int] = {}
        for first in range(0, lot.units, AT_ONCE):
            specs = [
                {"name": "tick", "id": f"j{n}", "data": None, "delay": DELAYS[n // AT_ONCE % len(DELAYS)]}
                for n in range(first, min(first + AT_ONCE, lot.units))
            ]
            dues |= {ref.id: ref.due_ms or 0 for ref in client.schedule_many(specs)}
        with connect(one.url) as plain:
            keys = Keys("delayq", QUEUE)
            wait_until(lambda: plain.hlen(keys.of("jobs")) == 0, timeout=600, what="all is done")
            assert broken(plain, keys) == []
        starts, early = Counter[str](), 0
        for line in members.ledger.lines("start"):
            starts[line.job] += 1
            early += line.at_ms < dues[line.job]
    lost, twice = len(dues) - len(starts), sum(times - 1 for times in starts.values())
    assert (lost, twice, early) == (0, 0, 0), f"{lost} lost, {twice} run twice, {early} early"
    return Tally().add(jobs=len(dues), lost=lost, run_twice=twice, early=early)


def herd(lot: Lot) -> Tally:
    """All of them due in one millisecond; somebody else's PINGs go on as if nothing were the matter."""
    options = {"slowlog-log-slower-than": str(SLOW_US), "slowlog-max-len": "1000"}
    with server(options=options) as one, crew(lot, one.url, lease_ms=30_000) as members, client_of(members) as client:
        due_ms = int(time.time() * 1000) + 3_000 + lot.units // 20
        for first in range(0, lot.units, AT_ONCE):
            numbers = range(first, min(first + AT_ONCE, lot.units))
            at = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(due_ms // 1000))}.{due_ms % 1000:03}Z"
            client.schedule_many([{"name": "tick", "id": f"h{n}", "data": None, "at": at} for n in numbers])
        for _ in range(2):
            members.hire()
        with connect(one.url) as plain:
            entries, waiting = Keys("delayq", QUEUE).of("jobs"), Keys("delayq", QUEUE).of("scheduled")
            wait_until(lambda: time.time() * 1000 >= due_ms - 200, timeout=120, what="it is nearly time")
            assert plain.zcard(waiting) == lot.units, "all of them wait for the same millisecond"
            with pinging(one.url) as pings:
                wait_until(lambda: plain.zcard(waiting) == 0, timeout=120, what="all are promoted")
                promoted_ms = time.time() * 1000 - due_ms
                wait_until(lambda: plain.hlen(entries) == 0, timeout=120, what="all are done")
            slow = [row for row in plain.slowlog_get(1000) if b"EVAL" in row["command"][:4]]
        ran = Counter(Ledger(lot.folder / "ledger.txt").jobs("start"))
    ordered = sorted(pings)
    late = ordered[int(len(ordered) * 0.99)]
    assert len(ran) == lot.units
    assert max(ran.values()) == 1
    assert late <= PING_MS, f"foreign PINGs took {spread(pings)}"
    tally = Tally().add(jobs=lot.units, run_twice=0, scripts_above_10_ms=len(slow))
    return tally.time("all_in_the_stream_after", promoted_ms).time("foreign_PING", *pings)


def flat(lot: Lot) -> Tally:
    """A tenth of so many jobs run, and Redis keeps nothing; so many wait for tomorrow, and a worker is no larger."""
    with (
        server() as one,
        crew(lot, one.url, lease_ms=30_000) as members,
        client_of(members) as q,
        connect(one.url) as r,
    ):
        worker, keys = members.hire(), Keys("delayq", QUEUE)
        _run_through(q, r, "warm", 2_000)
        used = int(r.info("memory")["used_memory"])
        _run_through(q, r, "many", lot.units // 10)
        # First answers are kept for a minute, for those who send again: 48 bytes a job.
        wait_until(
            lambda: not any(r.scan_iter(match="*:once:*", count=1_000)), timeout=120, what="answers are forgotten"
        )
        left_over = int(r.info("memory")["used_memory"]) - used
        before_kb = _resident_kb(worker.pid or 0)
        for first in range(0, lot.units, AT_ONCE):
            q.schedule_many([{"name": "tick", "id": f"w{n}", "delay": "1d"} for n in range(first, first + AT_ONCE)])
        assert r.zcard(keys.of("scheduled")) >= lot.units
        _run_through(q, r, "beside", 2_000)
        grown_kb = _resident_kb(worker.pid or 0) - before_kb
    assert grown_kb <= GROWTH_KB, f"the worker grew by {grown_kb} KB"
    assert left_over <= max(3_000_000, used // 50), f"{left_over:,} bytes are left of what has run"
    tally = Tally().add(jobs_waiting=lot.units, KB_more_in_the_worker=grown_kb, jobs_run_beside=lot.units // 10)
    return tally.add(bytes_left_in_Redis=max(0, left_over))


def _run_through(q: Client, plain: Any, prefix: str, count: int) -> None:
    """So many jobs, until all of them are gone."""
    keys = Keys("delayq", QUEUE)
    for first in range(0, count, AT_ONCE):
        q.schedule_many([{"name": "tick", "id": f"{prefix}{n}"} for n in range(first, min(count, first + AT_ONCE))])
    last = f"{prefix}{count - 1}"
    wait_until(lambda: not plain.hexists(keys.of("jobs"), last) and not plain.hlen(keys.of("entries")), timeout=300)


def _resident_kb(pid: int) -> int:
    """Of a worker and its children."""
    found = 0
    for one in whole(pid):
        rows = Path(f"/proc/{one}/smaps_rollup").read_text().splitlines()
        found += sum(int(row.split()[1]) for row in rows if row.startswith("Pss:"))
    return found


@contextmanager
def pinging(url: str) -> Iterator[list[float]]:
    """A process that does nothing but PING; how long each took, in ms, is there after the block."""
    context = multiprocessing.get_context("forkserver")
    ours, theirs = context.Pipe()
    process = context.Process(target=_ping, args=(url, theirs), daemon=True)
    process.start()
    ours.recv()
    found: list[float] = []
    yield found
    ours.send("enough")
    found += ours.recv()
    process.join(30)


def _ping(url: str, pipe: Connection[Any, Any]) -> None:
    times: list[float] = []
    with connect(url) as client:
        client.ping()
        pipe.send("ready")
        while not pipe.poll(0.001):
            began = time.perf_counter()
            client.ping()
            times.append(round((time.perf_counter() - began) * 1000, 3))
    pipe.send(times)
