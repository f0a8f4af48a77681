"""Primaries die and replicas take over; what was confirmed by a replica is there."""

from __future__ import annotations

import time
from contextlib import closing
from functools import partial
from typing import Any

import redis

from delayq.redis.keys import Keys
from tests.chaos.engine import Lot, Tally
from tests.chaos.world import ALWAYS, crew
from tests.support.chaos_producer import ProducerLog, produce
from tests.support.chaos_rig import QUEUE, is_idle
from tests.support.flavours import default_flavour, require
from tests.support.servers import LocalServer, connect
from tests.support.topologies import HOST, Sentinels, is_linked, is_primary
from tests.support.waiting import wait_until

JOBS_EACH, SECONDS_EACH = 1_000, 20.0
SAFE = {**ALWAYS, "min-replicas-to-write": "1", "min-replicas-max-lag": "10"}
BY_ITSELF = 0.25
"""Of those that come back do so as a service manager does it: as a primary, until the sentinels say something else."""
DURABILITY = "replicas:1"


def failovers(lot: Lot) -> Tally:
    """kill -9 of the primary of a healthy pair at any moment of the load, and the old one comes back.

    It has its append-only file: sentinels take a primary that stood still for a second for dead, and then promote the
    only other one they have, also when it has just come back and has not yet been given anything.
    """
    rand, took_ms = lot.rand, list[float]()
    plan = {"seed": lot.own_seed, "jobs": JOBS_EACH * lot.units, "longest_ms": 5, "seconds": SECONDS_EACH * lot.units}
    with (
        closing(Sentinels(require(default_flavour()), SAFE, replicas=1, persistent=True)) as pair,
        crew(lot, pair.url, lease_ms=2_000, durability=DURABILITY) as members,
    ):
        log = ProducerLog(lot.folder)
        members.hire()
        producing = members.hire(members.duty_with(plan), produce)
        for _ in range(lot.units):
            wait_until(partial(taken_since, log, len(log.dues())), timeout=60, what="jobs are taken")
            time.sleep(rand.uniform(0.2, 1.2))
            took_ms.append(fail_over(pair, by_itself=rand.random() < BY_ITSELF))
        unordered = pair.failovers() - lot.units
        members.kill_all([producing])
        with connect(pair.primary().url) as plain:
            wait_until(partial(done, plain), timeout=120, what="all is done")
        asked, taken, ended = log.asked(), set(log.dues()), set(members.ledger.jobs("end"))
    lost, unasked = taken - ended, ended & log.refused()
    assert not lost, f"{len(lost)} were taken and never ended: {sorted(lost)[:5]}"
    assert not unasked, f"{len(unasked)} ran, and were refused: {sorted(unasked)[:5]}"
    tally = Tally().add(failovers=lot.units, jobs=len(asked), taken=len(taken), refused=len(log.refused()))
    tally.add(not_confirmed_or_unknown=len(asked) - len(taken) - len(log.refused()), lost=len(lost))
    tally.add(failovers_that_nobody_asked_for=max(0, unordered))
    return tally.time("another_primary_after", *took_ms)


def taken_since(log: ProducerLog, before: int) -> bool:
    """Whether more were taken than that."""
    return len(log.dues()) > before


def fail_over(pair: Sentinels, *, by_itself: bool = False) -> float:
    """Kill the primary, wait for another, and let the old one follow it; after how many ms there was another.

    `by_itself`: it starts as the primary that it was, and is told by the sentinels.
    """
    before = pair.primary()
    before.kill()
    began = time.monotonic()
    wait_until(partial(is_another, pair, before), timeout=60, what="a replica takes over")
    took_ms = (time.monotonic() - began) * 1000
    port = pair.ports[pair.servers.index(pair.primary())]
    before.start({} if by_itself else {"replicaof": f"{HOST} {port}"})
    wait_until(partial(is_whole, pair), timeout=60, what="one is the primary, and the other follows it")
    pair.wait_for_all()
    return took_ms


def is_another(pair: Sentinels, before: LocalServer) -> bool:
    """Whether somebody else is the primary by now, in the sentinels' eyes and in its own."""
    return pair.primary() is not before and is_primary(pair.primary())


def is_whole(pair: Sentinels) -> bool:
    """Whether all agree who is the primary, and the other follows. On a busy machine that may be the old one again."""
    primaries = [one for one in pair.servers if is_primary(one)]
    followers = [one for one in pair.servers if not is_primary(one) and is_linked(one)]
    return primaries == [pair.primary()] and len(primaries) + len(followers) == len(pair.servers)


def done(plain: Any) -> bool:
    """Whether nothing waits and nothing runs; what is kept on purpose does not count."""
    try:
        return is_idle(plain, Keys("delayq", QUEUE))
    except redis.RedisError:
        return False
