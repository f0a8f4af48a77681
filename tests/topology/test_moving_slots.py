"""Slots that move to another node while jobs flow: nobody notices, nothing is lost, nothing runs twice."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from delayq.redis.aio import AsyncClient
from delayq.redis.directory import LOOK_EVERY_S
from tests.support.flavours import default_flavour, require
from tests.support.load import Load
from tests.support.machine import fair_clock
from tests.support.servers import connect
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


CALLERS = 200
ANSWER_S = 5.0
OWN_READS = 5
"""The first of a client; and whoever moves a slot looks three times himself."""


def counted(cluster: RedisCluster, section: str, *names: str) -> int:
    """What the nodes have counted in a section of INFO, all together."""
    found = 0
    for server in cluster.servers:
        with connect(server.url) as client:
            rows = client.info(section)
            found += sum(int(row.get("calls", row.get("count", 0))) for name, row in rows.items() if name in names)
    return found


def map_reads(cluster: RedisCluster) -> int:
    return counted(cluster, "commandstats", "cmdstat_cluster|slots", "cmdstat_cluster")


def put_off(cluster: RedisCluster) -> int:
    return counted(cluster, "errorstats", "errorstat_TRYAGAIN")


@pytest.mark.timed
def test_hundreds_of_callers_wait_together(cluster: RedisCluster) -> None:
    """Each that is put off doubts the map. If each read it anew, over a connection of its own, none got on."""
    slot = slot_of_queue(QUEUES[0])
    here = cluster.owner_of(slot)
    there = next(server for server in cluster.primaries() if server is not here)
    with closing(Station(cluster.url)) as station, ThreadPoolExecutor(CALLERS) as pool:
        station.client.schedule("note", queue=QUEUES[0], delay="1h")  # else the slot has nothing to move

        def call(n: int) -> float:
            started = fair_clock()
            station.client.schedule("note", queue=QUEUES[0], delay="1h", id=f"j{n}")
            return fair_clock() - started

        reads, started = map_reads(cluster), time.monotonic()
        with cluster.moving(slot, there):
            calls = [pool.submit(call, n) for n in range(CALLERS)]
            wait_until(lambda: put_off(cluster) >= 5 * CALLERS, what="all were put off, again and again")
        longest_s = max(one.result() for one in calls)
        looks = (time.monotonic() - started) / LOOK_EVERY_S
        assert map_reads(cluster) - reads <= looks + OWN_READS
        assert longest_s < ANSWER_S
        assert sum(stats.scheduled for stats in station.client.stats()) == CALLERS + 1


@pytest.mark.timed
def test_and_so_do_hundreds_of_tasks(cluster: RedisCluster) -> None:
    slot = slot_of_queue(QUEUES[0])
    here = cluster.owner_of(slot)
    there = next(server for server in cluster.primaries() if server is not here)

    async def all_of_them(station: Station) -> None:
        client = AsyncClient(station.connector, station.options)
        names = [f"a{n}" for n in range(CALLERS)]
        with cluster.moving(slot, there):
            calls = [
                asyncio.create_task(client.schedule("note", queue=QUEUES[0], delay="1h", id=name)) for name in names
            ]
            await asyncio.to_thread(wait_until, lambda: put_off(cluster) >= 3 * CALLERS, what="all were put off")
        await asyncio.gather(*calls)
        await station.connector.aclose()

    with closing(Station(cluster.url)) as station:
        station.client.schedule("note", queue=QUEUES[0], delay="1h")
        reads, started = map_reads(cluster), time.monotonic()
        asyncio.run(all_of_them(station))
        looks = (time.monotonic() - started) / LOOK_EVERY_S
        assert map_reads(cluster) - reads <= looks + OWN_READS
