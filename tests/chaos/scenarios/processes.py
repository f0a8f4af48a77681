"""Processes are killed and frozen: producers, movers, workers with all their children."""

from __future__ import annotations

import os
import random
import signal
import time
from functools import partial
from typing import Any

from delayq.redis.keys import GROUP, Keys
from tests.chaos.engine import Lot, Tally, spread
from tests.chaos.world import client_of, crew, rig, server, told, verdict
from tests.support.chaos_rig import QUEUE, Size
from tests.support.crew import Crew, whole
from tests.support.servers import connect
from tests.support.waiting import wait_until

LEASE_MS, TICK_MS, SPARE_MS = 1_000, 333, 2_000
CONSUMERS_SPARE = 5
THREADS, STEADY_S, FRESH, SUSPECT_MS, FRESH_LATE_MS = 8, 15, 5, 5_000, 250
"""Of the survivor; for so long a job of 5 s each second, and so many short ones beside it."""


def kills(lot: Lot) -> Tally:
    """kill -9; another one takes the place at once. What is run again was in the hands of the killed."""
    size = Size(jobs=20 * lot.units, seconds=0.12 * lot.units, longest_ms=40, workers=6, movers=2)
    rand = lot.rand
    with server() as one, rig(lot, one, size, lease_ms=2_000) as run:
        while run.struck < lot.units:
            time.sleep(rand.expovariate(1 / 0.03))
            first, *others = rand.sample(run.posts, 3)
            run.kill(*others)
            run.kill_child(first) if first.is_worker else run.kill(first)
        run.finish(timeout=120)
        found = verdict(run)
        assert found.run_twice <= run.held, f"{found.run_twice} run again, {run.held} were held by the killed"
        return told(found).add(kills=run.struck, held_by_the_killed=run.held)


def struck_off(lot: Lot) -> Tally:
    """A worker is killed and replaced again and again; after two minutes the group knows hardly more than live."""
    with server() as one, crew(lot, one.url) as members, client_of(members) as q, connect(one.url) as plain:
        known: list[int] = []
        for n in range(lot.units):
            worker = members.hire()
            q.schedule("note", id=f"j{n}")
            wait_until(partial(_ended, members, f"j{n}"), timeout=60, what="it works")
            members.kill_all([worker])
            known.append(consumers(plain))
        members.hire()
        wait_until(lambda: consumers(plain) <= 1 + CONSUMERS_SPARE, timeout=150, what="the dead are struck off")
        return Tally().add(restarts=lot.units, most_consumers=max(known), consumers_in_the_end=consumers(plain))


def _ended(members: Crew, job: str) -> bool:
    return job in members.ledger.jobs("end")


def freezes(lot: Lot) -> Tally:
    """SIGSTOP for three leases, many at a time; what they do when they wake up changes nothing that is not theirs."""
    workers = 4 if lot.smoke else 14
    size = Size(jobs=40 * lot.units, seconds=lot.units / workers * 3, longest_ms=60, workers=workers, movers=2)
    with server() as one, rig(lot, one, size, lease_ms=1_000) as run:
        wait_until(lambda: run.crew.ledger.jobs("start"), timeout=60, what="work has begun")
        run.freeze_many(lot.units, for_s=3.0, awake=2)
        run.finish(timeout=120)
        found = verdict(run)
        fences = run.crew.logs().count("it was taken back meanwhile")
        acked = int(run.client.hget(run.keys.meta, "acked_total") or 0)
        assert acked == found.done, f"{found.done} jobs ended, {acked} were settled"
        assert found.ended_twice <= fences, f"{found.ended_twice} ended again, {fences} fenced"
        return told(found).add(
            freezes=run.struck, ended_again=found.ended_twice, fenced=fences, changes_by_a_stranger=0
        )


def frozen_fleet(lot: Lot) -> Tally:
    """SIGSTOP for all processes of all workers, longer than a job may run; each job has one attempt, and completes."""
    rand, threads = lot.rand, (1, 1, 4)
    with server() as one, crew(lot, one.url, lease_ms=LEASE_MS) as members, client_of(members) as q:
        fleet = [members.hire(members.duty_with({"threads": n, "kill_after_ms": 1_000})) for n in threads]
        ids = [f"f{n}-{part}" for n in range(lot.units) for part in range(2 * sum(threads))]
        for n in range(lot.units):
            now = [job_id for job_id in ids if job_id.startswith(f"f{n}-")]
            same: dict[str, Any] = {"name": "note", "data": {"ms": 700}, "timeout": "3s", "tries": 1}
            q.schedule_many([{**same, "id": job_id} for job_id in now])
            wait_until(partial(_began, members, now), timeout=60, what="work has begun")
            pids = [pid for member in fleet for pid in whole(member.pid or 0)]
            freeze(pids, rand.uniform(4.0, 5.0), rand)
            wait_until(partial(_all_ended, members, now), timeout=60, what="all of them end")
        with connect(one.url) as plain:
            wait_until(lambda: plain.hlen(Keys("delayq", QUEUE).of("jobs")) == 0, timeout=60, what="nothing is left")
        [stats] = q.stats()
        charged = {name: stats.counters[name] for name in ("failed_total", "released_total")}
        assert charged == {"failed_total": 0, "released_total": 0}, charged
        run_again = len(members.ledger.jobs("start")) - len(ids)
        noticed = members.logs().count("this worker stood still for")
        return Tally().add(freezes=lot.units, jobs=len(ids), attempts_charged=0, run_again=run_again, noticed=noticed)


def freeze(pids: list[int], seconds: float, rand: random.Random) -> None:
    """Stop them all, and let them go on in another order."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(seconds)
    for pid in rand.sample(pids, len(pids)):
        os.kill(pid, signal.SIGCONT)


def _began(members: Crew, ids: list[str]) -> bool:
    return not set(members.ledger.jobs("start")).isdisjoint(ids)


def _all_ended(members: Crew, ids: list[str]) -> bool:
    return set(members.ledger.jobs("end")).issuperset(ids)


def recovery(lot: Lot) -> Tally:
    """Workers die with a job in their hands; another starts it within lease + tick + 2 s."""
    ids = [f"held{n}" for n in range(lot.units)]
    with server() as one, crew(lot, one.url, lease_ms=LEASE_MS) as members, client_of(members) as q:
        victims = [members.hire() for _ in ids]
        q.schedule_many([{"name": "note", "id": job_id, "data": {"until": "go"}} for job_id in ids])
        wait_until(lambda: set(members.ledger.jobs("start")) == set(ids), timeout=60, what="each holds one")
        for _ in ids:  # what was in the hands of the dead runs alone in its process
            members.hire()
        with connect(one.url) as plain:
            wait_until(lambda: consumers(plain) == 2 * len(ids), timeout=60, what="others are there")
        killed_ms = members.kill_all(victims)
        again = 2 * len(ids)
        wait_until(lambda: len(members.ledger.jobs("start")) == again, timeout=60, what="each is started again")
        (lot.folder / "go").touch()
        wait_until(lambda: set(members.ledger.jobs("end")) == set(ids), timeout=60, what="all end")
        took_ms = [line.at_ms - killed_ms for line in members.ledger.lines("start")[len(ids) :]]
    late = [ms for ms in took_ms if ms > LEASE_MS + TICK_MS + SPARE_MS]
    assert not late, f"lease + tick + 2 s is {LEASE_MS + TICK_MS + SPARE_MS} ms: {late}"
    return Tally().add(workers_killed=len(ids), late=len(late)).time("started_again_after", *took_ms)


def starve(lot: Lot) -> Tally:
    """A worker dies with many jobs; the only one left has eight threads and steady work, and none of it may suffer."""
    ids, go = [f"lost{n}" for n in range(lot.units)], lot.folder / "go"
    limit_ms, dues = LEASE_MS + TICK_MS + SPARE_MS, dict[str, int]()
    with server() as one, crew(lot, one.url, lease_ms=LEASE_MS) as members, client_of(members) as q:
        victim = members.hire(members.duty_with({"threads": lot.units}))
        q.schedule_many([{"name": "note", "id": job_id, "data": {"until": "go"}} for job_id in ids])
        wait_until(lambda: set(members.ledger.jobs("start")) == set(ids), timeout=60, what="the victim runs them all")
        members.hire(members.duty_with({"threads": THREADS}))
        with connect(one.url) as plain:
            wait_until(lambda: consumers(plain) == 2, timeout=60, what="the survivor is there")
            killed_ms = members.kill_all([victim])
            go.touch()
            plain.hset(Keys("delayq", QUEUE).of("recoveries"), "suspect", 2)
            q.schedule("note", {"ms": SUSPECT_MS}, id="suspect", delay="5s")
            for n in range(STEADY_S * FRESH):
                if n % FRESH == 0:
                    q.schedule("note", {"ms": 5_000}, id=f"steady{n}")
                ref = q.schedule("note", {"ms": 10}, id=f"fresh{n}")
                dues[ref.id] = ref.due_ms or 0
                time.sleep(1 / FRESH)
            wait_until(lambda: members.ledger.has_all("end", [*ids, *dues, "suspect"]), timeout=60, what="all are done")
            calls = plain.info("commandstats")
            (stats,) = q.stats(QUEUE)
        starts = members.ledger.lines("start")
    took_ms = [line.at_ms - killed_ms for line in starts[len(ids) :] if line.job in ids]
    (suspect,) = [line for line in starts if line.job == "suspect"]
    first = {line.job: line.at_ms for line in reversed(starts)}
    late_ms = [max(0.0, first[job] - due_ms) for job, due_ms in dues.items()]
    assert max(took_ms) <= limit_ms, f"lease + tick + 2 s is {limit_ms} ms: {spread(list(map(float, took_ms)))}"
    assert sorted(late_ms)[len(late_ms) // 2] <= FRESH_LATE_MS, f"fresh jobs were late by {spread(late_ms)}"
    assert suspect.pid not in {line.pid for line in starts if line.job in dues}, "it has a process of its own"
    tally = Tally().add(recovered=len(took_ms), fresh_jobs=len(dues), handed_back=stats.counters["handed_back_total"])
    tally.add(xadd_calls=int(calls["cmdstat_xadd"]["calls"]))
    return tally.time("started_again_after", *took_ms).time("fresh_late_by", *late_ms)


def consumers(client: Any) -> int:
    """How many the group of the queue knows."""
    return len(client.xinfo_consumers(Keys("delayq", QUEUE).stream, GROUP))
