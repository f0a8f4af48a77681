"""Slots that move to another node while jobs flow: nobody notices, nothing is lost, nothing runs twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.support.flavours import default_flavour, require
from tests.support.load import Load
from tests.support.station import Station
from tests.support.topologies import RedisCluster, slot_of_queue
from tests.support.waiting import wait_until

MOVES = 5
QUEUES = ("orders", "vip")
"""On different nodes, so that a worker waits for them side by side."""


@pytest.fixture
def cluster() -> Iterator[RedisCluster]:
    with closing(RedisCluster(require(default_flavour()), replicas=False)) as cluster:
        yield cluster


def test_a_slot_moves_back_and_forth_under_load(cluster: RedisCluster) -> None:
    slot = slot_of_queue(QUEUES[0])
    with closing(Station(cluster.url)) as station:
        ran = station.tape()
        station.handles("note", lambda n: ran.append(n))  # noqa: PLW0108  (a handler takes its arguments by name)
        with (
            station.working(queues=QUEUES, mover=True),
            Load(station.client, per_second=50, queues=QUEUES) as load,
        ):
            load.flow(20)
            for _ in range(MOVES):
                here = cluster.owner_of(slot)
                there = next(server for server in cluster.primaries() if server is not here)
                with cluster.moving(slot, there):
                    load.meet()  # the slot's keys are on neither side alone
                load.flow(15)
            load.hold()
            wait_until(lambda: set(ran[:]) >= set(load.taken), what="all have run")
            assert (load.refused, load.unknown) == ([], [])
        assert [job for job, times in Counter(ran[:]).items() if times > 1] == []
        assert set(ran[:]) == set(load.taken)
