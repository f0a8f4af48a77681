"""A primary that dies, or stands still, while jobs flow: a replica takes over, and nothing that it had is lost.

One round in CI; `DELAYQ_CHAOS=full` strikes every way on both topologies, 20 times each.
Before each blow producers hold on until the replicas have what was taken: what a primary takes with it is another
matter (see docs/guarantees.md, and durability by name).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial

import pytest

from tests.support.flavours import default_flavour, require
from tests.support.load import Load
from tests.support.servers import LocalServer
from tests.support.station import QUEUE, Station
from tests.support.topologies import Group, RedisCluster, Sentinels, caught_up, is_linked, replication
from tests.support.waiting import wait_until

FULL = os.environ.get("DELAYQ_CHAOS") == "full"
ROUNDS = 20 if FULL else 1
ANSWER_S = 5.0
"""One answer or one error within that time: the promise to producers."""

Record = Callable[[str, object], None]
Blow = Callable[[LocalServer], None]
BLOWS = {"killed": (LocalServer.kill, LocalServer.start), "frozen": (LocalServer.stop, LocalServer.cont)}


@contextmanager
def flowing(group: Group) -> Iterator[Load]:
    """A worker and a stream of jobs; at the end, whether all that were taken have run."""
    with closing(Station(group.url)) as station:
        ran = station.tape()
        station.handles("note", lambda n: ran.append(n))  # noqa: PLW0108  (a handler takes its arguments by name)
        with station.working(mover=True), Load(station.client) as load:
            load.flow(20)
            yield load
            load.hold()
            wait_until(lambda: set(ran[:]) >= set(load.taken), timeout=60, what="all that were taken have run")
        assert load.longest_s <= ANSWER_S
        assert set(ran[:]) - set(load.taken) <= set(load.unknown), "no job runs that was refused"


def strike(group: Group, load: Load, blow: str, replicas: int) -> list[float]:
    """Hit the primary of the queue, and see that all goes on; then let it come back, if it will be needed again.

    Answers after how many seconds each time a job was taken again.
    """
    hit, undo = BLOWS[blow]
    gaps: list[float] = []
    for left in reversed(range(ROUNDS)):
        before = group.owner(QUEUE)
        load.hold()
        wait_until(partial(caught_up, before, replicas, QUEUE), what="the replicas have everything")
        hit(before)
        load.go_on()
        began = time.monotonic()
        load.flow(1)
        gaps.append(time.monotonic() - began)
        wait_until(partial(_is_another, group, before), timeout=60, what="a replica has taken over")
        load.flow(20)
        if left:
            undo(before)
            wait_until(partial(_is_replica, before), timeout=60, what="it is a replica")
            wait_until(partial(is_linked, before), what="it follows")
    return gaps


def told(load: Load, gaps: list[float]) -> str:
    """For the summary of the run."""
    calls = f"{len(load.taken)} taken, {len(load.unknown)} unknown, {len(load.refused)} refused"
    return f"{calls}, longest call {load.longest_s:.1f} s; taken again after {min(gaps):.1f} to {max(gaps):.1f} s"


def _is_another(group: Group, before: LocalServer) -> bool:
    return group.owner(QUEUE) is not before


def _is_replica(server: LocalServer) -> bool:
    return replication(server).get("role") == "slave"


@pytest.mark.timeout(60 + 60 * ROUNDS)
@pytest.mark.timed
@pytest.mark.parametrize("blow", list(BLOWS) if FULL else ["killed"])
def test_the_primary_that_owns_the_queue(blow: str, record_property: Record) -> None:
    with closing(RedisCluster(require(default_flavour()))) as cluster, flowing(cluster) as load:
        gaps = strike(cluster, load, blow, replicas=1)
    record_property("chaos", f"cluster, {ROUNDS} primaries {blow}: {told(load, gaps)}")


@pytest.mark.timeout(60 + 60 * ROUNDS)
@pytest.mark.timed
@pytest.mark.parametrize("blow", list(BLOWS) if FULL else ["frozen"])
def test_the_primary_behind_sentinels(blow: str, record_property: Record) -> None:
    with closing(Sentinels(require(default_flavour()))) as group, flowing(group) as load:
        gaps = strike(group, load, blow, replicas=2)
    record_property("chaos", f"sentinels, {ROUNDS} primaries {blow}: {told(load, gaps)}")


@pytest.mark.timeout(60 + 60 * ROUNDS)
def test_one_failover_after_another() -> None:
    """Ordered ones: the worker and its loops go on, producers wait until they are over.

    Until then the old primary takes jobs, and what has not run by its demotion is lost: see docs/guarantees.md.
    """
    with closing(Sentinels(require(default_flavour()))) as group, flowing(group) as load:
        for _ in range(ROUNDS):
            load.hold()
            wait_until(lambda: caught_up(group.primary(), 2, QUEUE), what="the replicas have everything")
            before = group.primary()
            group.fail_over()
            wait_until(partial(_is_replica, before), timeout=60, what="the old primary is demoted")
            load.go_on()
            load.flow(20)
            wait_until(lambda: all(map(is_linked, group.servers)), what="all follow")
