"""A primary that dies, or stands still, while jobs flow: a replica takes over, and nothing that it had is lost.

One round in CI; `DELAYQ_CHAOS=full` strikes every way on both topologies, 20 times each.
Before each blow producers hold on until the replicas have what was taken: what a primary takes with it is another
matter (see docs/guarantees.md, and durability by name).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial

import pytest

from tests.support.flavours import default_flavour, require
from tests.support.load import Load
from tests.support.servers import LocalServer
from tests.support.station import QUEUE, Station
from tests.support.topologies import Group, RedisCluster, Sentinels, caught_up, is_linked, is_primary
from tests.support.waiting import wait_until

FULL = os.environ.get("DELAYQ_CHAOS") == "full"
ROUNDS = 20 if FULL else 1
ANSWER_S = 5.0
"""One answer or one error within that time: the promise to producers."""

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


def strike(group: Group, load: Load, blow: str, replicas: int) -> None:
    """Hit the primary of the queue, and see that all goes on; then let it come back, if it will be needed again."""
    hit, undo = BLOWS[blow]
    for left in reversed(range(ROUNDS)):
        before = group.owner(QUEUE)
        load.hold()
        wait_until(partial(caught_up, before, replicas), what="the replicas have everything")
        hit(before)
        load.go_on()
        wait_until(partial(_is_another, group, before), timeout=60, what="a replica has taken over")
        load.flow(20)
        if left:
            undo(before)
            wait_until(partial(_is_replica, before), timeout=60, what="it is a replica")
            wait_until(partial(is_linked, before), what="it follows")


def _is_another(group: Group, before: LocalServer) -> bool:
    return group.owner(QUEUE) is not before


def _is_replica(server: LocalServer) -> bool:
    return server.is_ready() and not is_primary(server)


@pytest.mark.timeout(60 + 60 * ROUNDS)
@pytest.mark.timed
@pytest.mark.parametrize("blow", list(BLOWS) if FULL else ["killed"])
def test_the_primary_that_owns_the_queue(blow: str) -> None:
    with closing(RedisCluster(require(default_flavour()))) as cluster, flowing(cluster) as load:
        strike(cluster, load, blow, replicas=1)


@pytest.mark.timeout(60 + 60 * ROUNDS)
@pytest.mark.timed
@pytest.mark.parametrize("blow", list(BLOWS) if FULL else ["frozen"])
def test_the_primary_behind_sentinels(blow: str) -> None:
    with closing(Sentinels(require(default_flavour()))) as group, flowing(group) as load:
        strike(group, load, blow, replicas=2)


@pytest.mark.timeout(60 + 60 * ROUNDS)
def test_one_failover_after_another() -> None:
    """Ordered ones: producers wait, the worker and its loops do not."""
    with closing(Sentinels(require(default_flavour()))) as group, flowing(group) as load:
        for _ in range(ROUNDS):
            load.hold()
            wait_until(lambda: caught_up(group.primary(), 2), what="the replicas have everything")
            group.fail_over()
            load.go_on()
            load.flow(20)
            wait_until(lambda: all(map(is_linked, group.servers)), what="all follow")
