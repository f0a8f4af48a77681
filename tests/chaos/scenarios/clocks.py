"""Clocks that are wrong: the server's is stepped while jobs flow; a producer's and a worker's are an hour off."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path

from delayq.redis.keys import Keys
from tests.chaos.engine import ROOT, Lot, Tally, spread
from tests.chaos.scenarios.processes import consumers
from tests.chaos.world import client_of, crew, server
from tests.support.chaos_producer import ProducerLog, produce
from tests.support.chaos_rig import QUEUE, is_idle
from tests.support.flavours import Flavour, require
from tests.support.ledger import Ledger
from tests.support.rule_one import broken
from tests.support.servers import LocalServer, connect
from tests.support.waiting import wait_until

LIBRARIES = ("/usr/lib/*/faketime/libfaketimeMT.so.1", "/usr/lib/faketime/libfaketimeMT.so.1")
HOUR_S = 3_600
STEPS_S = (HOUR_S, -HOUR_S, 90, -90)
JOBS, SECONDS = 300, 6.0
LATE_MS = 1_000
LEASE_MS = 1_000
BACK_WITHIN_MS = 6_000
"""After the step: two leases, one for the hold, two ticks, and the start of a worker."""


def library() -> Path | None:
    """Where libfaketime is."""
    return next((path for pattern in LIBRARIES for path in Path("/").glob(pattern[1:])), None)


def missing() -> str:
    """Why clocks cannot be turned here."""
    return "" if library() else "there is no libfaketime: apt-get install libfaketime"


def wanted() -> bool:
    """Whether CI installed libfaketime for these tests, so that a missing one is a failure."""
    return os.environ.get("DELAYQ_TEST_FAKETIME", "") == "1"


def faked(rate: Path | str) -> dict[str, str]:
    """The environment of a program whose wall clock is off: by so many seconds, or by what a file says now."""
    given = {"LD_PRELOAD": str(library()), "FAKETIME_NO_CACHE": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    given["DONT_FAKE_MONOTONIC"] = "1"
    return {**given, **({"FAKETIME_TIMESTAMP_FILE": str(rate)} if isinstance(rate, Path) else {"FAKETIME": rate})}


@contextmanager
def server_with(environment: Mapping[str, str]) -> Iterator[LocalServer]:
    """A Valkey in that environment. The distribution's Redis has jemalloc, which asks for the time too early."""
    with closing(LocalServer(require(Flavour.VALKEY))) as one:
        with environment_of(environment):
            one.start()
        yield one


@contextmanager
def environment_of(given: Mapping[str, str]) -> Iterator[None]:
    """What is started in the block has these variables too."""
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def stepped(lot: Lot) -> Tally:
    """The server's clock jumps forth and back under load, and workers are killed just before it jumps back.

    Nothing is lost, and what the killed held is done soon after the clock is right again, not after as long as the step
    was. What falls due is early or late by the step, as docs/guarantees.md says.
    """
    rate, tally, rand, after_ms = lot.folder / "rate", Tally(), lot.rand, list[float]()
    turn(rate, 0)
    with (
        server_with(faked(rate)) as one,
        crew(lot, one.url, lease_ms=LEASE_MS) as members,
        connect(one.url) as plain,
        client_of(members) as asking,
    ):
        log, keys = ProducerLog(lot.folder), Keys("delayq", QUEUE)
        jobs = JOBS * lot.units
        plan = {"seed": lot.own_seed, "jobs": jobs, "longest_ms": 20, "seconds": SECONDS * lot.units}
        worker = [members.hire() for _ in range(2)]
        producing = members.hire(members.duty_with(plan), produce)
        for n in range(lot.units):
            step, held = STEPS_S[n % len(STEPS_S)], [f"held{n}-{k}" for k in range(len(worker))]
            turn(rate, step)
            asking.schedule_many([{"name": "note", "id": job_id, "data": {"until": f"go{n}"}} for job_id in held])
            wait_until(partial(members.ledger.has_all, "start", held), timeout=30, what="each worker holds one")
            time.sleep(rand.uniform(0.5, 1.5))
            members.kill_all([worker.pop(0)])
            worker.append(members.hire())
            turn(rate, 0)
            (lot.folder / f"go{n}").touch()
            began = time.monotonic()
            wait_until(partial(members.ledger.has_all, "end", held), timeout=60, what="what the killed held is done")
            after_ms.append((time.monotonic() - began) * 1000)
            tally.add(steps=2, workers_killed=1)
        wait_until(lambda: not producing.is_alive(), timeout=240, what="all is asked for")
        turn(rate, HOUR_S)  # what was made due while the clock stood an hour ahead need not be waited for
        wait_until(lambda: is_idle(plain, keys), timeout=120, what="all is done")
        assert broken(plain, keys) == []
        lost = set(log.dues()) - set(members.ledger.jobs("end"))
    assert not lost, f"{len(lost)} were taken and never ended: {sorted(lost)[:5]}"
    slow = [round(ms) for ms in after_ms if ms > BACK_WITHIN_MS]
    assert not slow, f"what the killed held was done more than {BACK_WITHIN_MS} ms after the clock was right: {slow}"
    return tally.add(jobs=jobs, lost=len(lost)).time("done_after_the_step_back", *after_ms)


def turn(rate: Path, seconds: int) -> None:
    """Set the clock of those that read `rate` so far ahead of the machine's."""
    anew = rate.with_suffix(".new")
    anew.write_text(f"{seconds:+d}\n")
    anew.replace(rate)


# libfaketime refuses what Python's sleep asks of the kernel; a wait for nothing is as good.
PROGRAM = """
import select, sys, time
time.sleep = lambda seconds: select.select([], [], [], seconds) and None
from pathlib import Path
from tests.support.chaos_producer import produce
from tests.support.crew import Duty, serve
more = {"seed": int(sys.argv[4]), "jobs": int(sys.argv[5]), "longest_ms": 2, "seconds": float(sys.argv[6])}
duty = Duty(url=sys.argv[2], folder=Path(sys.argv[3]), more=more if sys.argv[1] == "produce" else {})
(produce if sys.argv[1] == "produce" else serve)(duty)
"""


def skewed(lot: Lot) -> Tally:
    """The producer's clock is an hour behind, the worker's an hour ahead: nothing is early, little is late."""
    words = [str(lot.folder), str(lot.own_seed), str(lot.units), str(lot.units / 50)]
    with server() as one, connect(one.url) as plain, ExitStack() as stack:
        keys = Keys("delayq", QUEUE)
        stack.enter_context(_program("serve", f"+{HOUR_S}", one.url, words))
        wait_until(lambda: plain.exists(keys.stream) and consumers(plain), timeout=60, what="the worker is there")
        producer = stack.enter_context(_program("produce", f"-{HOUR_S}", one.url, words))
        assert producer.wait(120 + lot.units / 10) == 0
        wait_until(lambda: is_idle(plain, keys), timeout=60, what="all is done")
    return _lateness(lot)


@contextmanager
def _program(life: str, rate: str, url: str, words: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    environment = {**os.environ, **faked(rate), "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, "-c", PROGRAM, life, url, *words], env=environment) as process:
        try:
            yield process
        finally:
            process.kill()


def _lateness(lot: Lot) -> Tally:
    dues, ledger = ProducerLog(lot.folder).dues(), Ledger(lot.folder / "ledger.txt")
    first = [line for line in ledger.lines("start") if line.attempt == 1]
    late_ms = [line.at_ms - HOUR_S * 1000 - dues[line.job] for line in first]
    ledger.close()
    early = sum(ms < 0 for ms in late_ms)
    assert set(dues) == {line.job for line in first}
    assert early == 0, f"{early} were early by the server's clock"
    ordered = sorted(late_ms)
    assert ordered[int(len(ordered) * 0.99)] <= LATE_MS, spread(list(map(float, ordered)))
    return Tally().add(jobs=len(dues), early=early).time("late_by", *map(float, late_ms))
