"""One primary of a cluster refuses writes: it is named, and the others are not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from delayq.core.diagnosis import judge
from delayq.core.facts import Refusal
from delayq.core.options import Options
from delayq.redis.checkup import gather
from delayq.redis.client import Client
from delayq.redis.connect import Connector
from delayq.redis.observing import observe
from delayq.redis.server_state import server_states
from tests.support.flavours import default_flavour, require
from tests.support.refusing import fill
from tests.support.servers import connect
from tests.support.topologies import RedisCluster

QUEUE = "orders"


@pytest.fixture
def cluster() -> Iterator[RedisCluster]:
    with closing(RedisCluster(require(default_flavour()), replicas=False)) as cluster:
        yield cluster


def test_the_primary_that_is_full_is_named(cluster: RedisCluster) -> None:
    with closing(Connector(cluster.url)) as connector:
        client = Client(connector, Options())
        client.schedule("close", id="o1", queue=QUEUE, delay="1h")
        assert [state.writable for state in server_states(connector, "delayq")] == [True] * 3
        full = cluster.owner(QUEUE)
        fill(full)
        refusing = [state for state in server_states(connector, "delayq") if not state.writable]
        assert [state.refuses for state in refusing] == [Refusal.MEMORY]
        [found] = [found for found in judge(gather(client)) if found.code == "writes-refused"]
        assert found.where.endswith(f", node {refusing[0].node}")
        seen = observe(connector, Options())
        assert sorted(bool(state.writable) for state in seen.servers) == [False, True, True]
        for node in cluster.primaries():
            with connect(node.url) as plain:
                assert not [key for key in plain.scan_iter() if b"probe" in key]
