"""Queues that are not well: jobs among others that kill whoever runs them, and more jobs than anybody has."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from delayq.core.states import State
from delayq.drivers.redis_streams import RedisStreams
from delayq.redis import scripts
from delayq.redis.client import Client
from delayq.redis.keys import Keys
from tests.chaos.engine import Lot, Tally, spread
from tests.chaos.world import client_of, crew, server
from tests.support.chaos_rig import QUEUE
from tests.support.crew import Crew
from tests.support.servers import connect
from tests.support.waiting import wait_until

LEASE_MS, STARTS, WORKERS = 2_000, 4, 4
EVERY_S, OTHERS = 0.02, 50
"""A job all so many seconds, and so many beside each that kills."""
SLOW_US, AT_ONCE = 10_000, 500
RUNNING_PART, READY_PART = 1_000, 10
CALLS_EACH = 40
CHANCE = 1 / 1_000
"""The slow log has a clock, and others have the server's core now and then."""


def poison(lot: Lot) -> Tally:
    """Of so many jobs each kills its process, or its whole worker, which is then started anew; others are in time."""
    rand, poisoned, dues = lot.rand, set[str](), dict[str, int]()
    with (
        server() as one,
        crew(lot, one.url, lease_ms=LEASE_MS, max_recoveries=STARTS - 1) as members,
        client_of(members) as q,
    ):
        _replace_the_dead(members)
        for n in range(lot.units):
            name = rand.choice(("crash", "deadly"))
            poisoned.add(q.schedule(name, id=f"p{n}").id)
            for k in range(OTHERS):
                ref = q.schedule("note", {"ms": 5}, id=f"o{n}-{k}")
                dues[ref.id] = ref.due_ms or 0
                time.sleep(EVERY_S)
                _replace_the_dead(members)

        def all_over() -> bool:
            _replace_the_dead(members)
            return {job.id for job in q.iter_jobs(State.FAILED)} == poisoned and members.ledger.has_all("end", [*dues])

        wait_until(all_over, timeout=120, what="those that kill have failed, all others are done")
        starts = members.ledger.counted("start")
        first = {line.job: line.at_ms for line in reversed(members.ledger.lines("start"))}
    most = max(starts[job] for job in poisoned)
    late_ms = [max(0.0, first[job] - due_ms) for job, due_ms in dues.items()]
    p99 = sorted(late_ms)[int(len(late_ms) * 0.99)]
    assert most <= STARTS, f"a job that kills was started {most} times"
    assert p99 <= 2 * LEASE_MS, f"others were late by {spread(late_ms)}"
    killed = sum(starts[job] for job in poisoned)
    return Tally().add(jobs_that_kill=lot.units, kills=killed, others=len(dues)).time("others_late_by", *late_ms)


def _replace_the_dead(members: Crew) -> None:
    """As a service manager does; every other worker has threads."""
    alive = sum(member.is_alive() for member in members.members)
    for _ in range(WORKERS - alive):
        members.hire(members.duty_with({"threads": 1 + 3 * (len(members.members) % 2)}))


def crowded(lot: Lot) -> Tally:
    """So many scheduled, a tenth of it ready and a thousandth running; then all that is done to a queue is done to it.

    The running are held by somebody who is gone, so they are taken back too.
    """
    options = {"slowlog-log-slower-than": str(SLOW_US), "slowlog-max-len": "10000"}
    ready, running, keys = lot.units // READY_PART, lot.units // RUNNING_PART, Keys("delayq", QUEUE)
    with (
        server(options=options) as one,
        crew(lot, one.url, lease_ms=LEASE_MS) as members,
        client_of(members) as q,
        connect(one.url) as plain,
    ):
        _schedule(q, "w", lot.units, "1d")
        _schedule(q, "r", ready, "0s")
        driver = RedisStreams(q.connector, q.options)
        gone = driver.consumer("dq:gone:1:a", (QUEUE,))
        taken = [
            held
            for first in range(0, running, AT_ONCE)
            for held in gone.fetch((), min(AT_ONCE, running - first)).deliveries
        ]
        found = (plain.zcard(keys.of("scheduled")), plain.xlen(keys.stream), len(taken))
        assert found == (lot.units, ready, running), f"waiting, in the stream, held: {found}"
        members.hire()
        victims = iter(lot.rand.sample(range(lot.units), 2 * 3 * CALLS_EACH))
        calls = _everything(q, victims)
        wait_until(lambda: plain.xlen(keys.stream) == 0, timeout=300, what="what was ready or held is done")
        calls += _everything(q, victims)
        slow = _slow_scripts(plain)
        run = int(plain.info("commandstats")["cmdstat_evalsha"]["calls"])
    assert len(slow) <= run * CHANCE, f"of {run:,} scripts these took more than 10 ms: {slow}"
    tally = Tally().add(scheduled=lot.units, ready=ready, running=running, calls=calls, scripts=run)
    return tally.add(above_10_ms=len(slow)).time("the_longest", *[ms for _, ms in slow])


def _slow_scripts(plain: Any) -> list[tuple[str, float]]:
    """Each with its milliseconds."""
    names = {scripts.load(name).sha.encode(): name for name in scripts.names()}
    rows = [(row["command"].split(b" "), row["duration"] / 1000) for row in plain.slowlog_get(10_000)]
    return [(names[words[1]], ms) for words, ms in rows if words[0] == b"EVALSHA"]


def _schedule(q: Client, prefix: str, count: int, delay: str) -> None:
    for first in range(0, count, AT_ONCE):
        q.schedule_many(
            [{"name": "tick", "id": f"{prefix}{n}", "delay": delay} for n in range(first, min(first + AT_ONCE, count))]
        )


def _everything(q: Client, victims: Iterator[int]) -> int:
    """One of each call, over and over, never two on one job; how many calls that were."""
    made = 0
    for _ in range(CALLS_EACH):
        later, gone, now = (f"w{next(victims)}" for _ in range(3))
        verbs: tuple[Callable[[], object], ...] = (
            partial(q.schedule, "tick", delay="1h"),
            partial(q.reschedule, later, delay="2d"),
            partial(q.get, later),
            partial(q.cancel, gone),
            partial(q.run_now, now),
            q.stats,
            q.upcoming,
            q.activity,
            q.recent_failures,
            partial(q.list_jobs, State.SCHEDULED, limit=100),
            partial(q.list_jobs, State.READY, limit=100),
            q.pause,
            q.resume,
        )
        for verb in verbs:
            verb()
        made += len(verbs)
    return made
