"""Durability on sentinels and on a cluster: the wait goes to the node that wrote, also while a slot moves away."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from delayq.core.errors import NotConfirmed
from delayq.core.options import Options
from delayq.redis.aio import AsyncClient
from delayq.redis.client import Client
from delayq.redis.connect import Connector
from tests.support.durable import PATIENT, SHORT
from tests.support.servers import connect
from tests.support.topologies import Group, Kind, RedisCluster, slot_of_queue

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
