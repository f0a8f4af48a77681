"""Durability on sentinels and on a cluster: the wait goes to the node that wrote, also while a slot moves away."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import partial

import pytest

from delayq.core.errors import NotConfirmed
from delayq.core.options import Options
from delayq.core.shards import number_for, shard_of
from delayq.core.states import Answer, State
from delayq.redis.aio import AsyncClient
from delayq.redis.client import Client
from delayq.redis.connect import Connector, Waits
from delayq.redis.keys import Keys
from tests.support.durable import PATIENT, SHORT, fail_in, ids_of
from tests.support.servers import LocalServer, connect
from tests.support.topologies import Group, Kind, RedisCluster, slot_of_queue
from tests.support.waiting import wait_until

PATIENT_FOR_A_WHILE = Waits(answer_ms=10_000, budget_ms=60_000, confirm_ms=6_000)
QUEUES = ("orders", "mails", "reports", "default")


@pytest.fixture(params=[Kind.SENTINEL, Kind.CLUSTER], ids=str)
def topology(request: pytest.FixtureRequest) -> Kind:
    return Kind(request.param)


@pytest.fixture
def q(redis_url: str) -> Iterator[Client]:
    with closing(Connector(redis_url, waits=PATIENT)) as connector:
        yield Client(connector, Options())


def waits_of(group: Group) -> int:
    """How many WAITs its primaries were sent."""
    total = 0
    for server in group.primaries():
        with connect(server.url) as client:
            total += int(client.info("commandstats").get("cmdstat_wait", {}).get("calls", 0))
    return total


async def test_each_queue_at_its_own_node(group: Group, q: Client, redis_url: str) -> None:
    before = waits_of(group)
    aq = AsyncClient(Connector(redis_url, waits=PATIENT), Options())
    for queue in QUEUES:
        assert q.schedule("close", id="a", queue=queue, delay="1h", durability="replicas:1").outcome == "created"
        ref = await aq.schedule("close", id="b", queue=queue, delay="1h", durability="replicas:1")
        assert ref.outcome == "created"
        assert q.cancel("a", queue=queue, durability="replicas:1") == "cancelled"
    await aq.close()
    assert waits_of(group) - before >= 3 * len(QUEUES)
    with closing(Connector(redis_url, waits=SHORT)) as hasty, pytest.raises(NotConfirmed, match=r"\d of 9 replicas"):
        Client(hasty, Options()).schedule("close", queue="orders", delay="1h", durability="replicas:9")


@pytest.mark.parametrize("topology", [Kind.CLUSTER], indirect=True, ids=str)
async def test_while_its_slot_moves(group: Group, q: Client, redis_url: str) -> None:
    """The old owner says ASK for what it no longer has, and MOVED when all of it is gone."""
    assert isinstance(group, RedisCluster)
    aq = AsyncClient(Connector(redis_url, waits=PATIENT), Options())
    q.schedule("close", id="before", queue="orders", delay="1h", durability="replicas:1")
    await aq.schedule("close", id="abefore", queue="orders", delay="1h", durability="replicas:1")
    old = group.owner("orders")
    new = next(server for server in group.primaries() if server is not old)
    with group.moving(slot_of_queue("orders"), new):
        pass
    assert q.schedule("close", id="after", queue="orders", delay="1h", durability="replicas:1").id == "after"
    await aq.schedule("close", id="aafter", queue="orders", delay="1h", durability="replicas:1")
    assert q.cancel("before", queue="orders", durability="replicas:1") == "cancelled"
    await aq.close()
    assert q.stats("orders")[0].scheduled == 3
    with group.moving(slot_of_queue("orders"), old):
        pass


@pytest.mark.parametrize("topology", [Kind.CLUSTER], indirect=True, ids=str)
def test_shards_on_three_nodes(group: Group, q: Client, redis_url: str) -> None:
    """Each is confirmed at its own node, and one without its replica is not; the jobs there are named, and no others.

    The shard that falls short is the last that is asked: the others are waited for as long as it takes.
    """
    assert isinstance(group, RedisCluster)
    queue = next(name for name in map("q{}".format, range(1_000)) if len(owners(group, name)) == 3)
    q.queue_set(queue, shards=3, durability="replicas:1")
    jobs = [{"name": "close", "id": f"j{n}", "queue": queue, "delay": "1h"} for n in range(24)]
    last = [f"j{n}" for n in range(24) if number_for(f"j{n}", 3) == 2]
    q.schedule_many(jobs)
    for n in range(24):
        shard = shard_of(queue, number_for(f"j{n}", 3))
        assert holds(replica_of(group, group.owner(shard)), shard, f"j{n}")
    assert q.reschedule(last[0], queue=queue, delay="2h").outcome is Answer.RESCHEDULED
    assert q.cancel(last[1], queue=queue) is Answer.CANCELLED
    fail_in(q, shard_of(queue, 2), last[2], queue)
    assert q.retry(last[2], queue=queue).state is State.SCHEDULED
    fail_in(q, shard_of(queue, 2), last[2], queue)
    replica = replica_of(group, group.owner(shard_of(queue, 2)))
    replica.stop()
    try:
        one_without_its_replica(q, redis_url, queue, last)
        replica.cont()
        assert q.reschedule(last[4], queue=queue, delay="3h").outcome is Answer.RESCHEDULED, "and it is there again"
    finally:
        replica.cont()
        for server in group.servers:
            wait_until(partial(all_well, group, server), timeout=60, what="all nodes are well")


def one_without_its_replica(q: Client, redis_url: str, queue: str, last: list[str]) -> None:
    others = [f"j{n}" for n in range(24) if f"j{n}" not in last]
    fresh = [{"name": "close", "id": job_id, "queue": queue, "delay": "1h"} for job_id in (*others, *last[3:])]
    those = f"for {len(last) - 3} of them: 0 of 1 replicas"
    with (
        closing(Connector(redis_url, waits=PATIENT_FOR_A_WHILE)) as connector,
        pytest.raises(NotConfirmed, match=those) as caught,
    ):
        Client(connector, Options()).schedule_many(fresh)
    assert ids_of(caught.value.done) == [*others, *last[3:]]
    assert ids_of(caught.value.unconfirmed) == last[3:]
    assert q.reschedule(others[0], queue=queue, delay="2h").outcome is Answer.RESCHEDULED
    assert q.cancel(others[1], queue=queue) is Answer.CANCELLED
    with closing(Connector(redis_url, waits=SHORT)) as connector:
        hasty = Client(connector, Options())
        with pytest.raises(NotConfirmed, match=f"'{last[0]}' in queue '{queue}' is stored"):
            hasty.reschedule(last[0], queue=queue, delay="3h")
        with pytest.raises(NotConfirmed, match=f"'{last[3]}' in queue '{queue}' is cancelled"):
            hasty.cancel(last[3], queue=queue)
        with pytest.raises(NotConfirmed, match=f"'{last[2]}' in queue '{queue}' is stored"):
            hasty.retry(last[2], queue=queue)


def owners(group: RedisCluster, queue: str) -> set[int]:
    return {group.owner(shard_of(queue, number)).pid for number in range(3)}


def nodes(group: RedisCluster, server: LocalServer) -> bytes:
    said: bytes = group.say(server, "CLUSTER", "NODES")
    return said


def all_well(group: RedisCluster, server: LocalServer) -> bool:
    return b"fail" not in nodes(group, server)


def replica_of(group: RedisCluster, primary: LocalServer) -> LocalServer:
    rows = [line.split() for line in nodes(group, primary).decode().splitlines()]
    name = next(row[0] for row in rows if row[3] == group.id_of(primary))
    return next(server for server in group.servers if group.id_of(server) == name)


def holds(replica: LocalServer, shard: str, job_id: str) -> bool:
    with connect(replica.url) as client:
        client.execute_command("READONLY")
        return bool(client.hexists(Keys("delayq", shard).of("jobs"), job_id))
