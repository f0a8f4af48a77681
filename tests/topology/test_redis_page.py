"""The page about Redis over a cluster: each node is shown, and one that is away is named."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from delayq import DelayQ
from delayq.redis.slots import slot_of
from tests.support.flavours import default_flavour, require
from tests.support.pages import read
from tests.support.topologies import HOST, RedisCluster
from tests.support.web import web

LIST = slot_of("delayq:queues")


@pytest.fixture
def cluster() -> Iterator[RedisCluster]:
    options = {"cluster-require-full-coverage": "no"}
    with closing(RedisCluster(require(default_flavour()), replicas=False, options=options)) as cluster:
        yield cluster


def nodes_of(cluster: RedisCluster) -> list[str]:
    return [f"{HOST}:{port}" for port in cluster.ports]


async def test_each_node_of_a_cluster_is_shown(cluster: RedisCluster) -> None:
    with DelayQ(cluster.url) as q:
        for queue in ("orders", "vip", "mail"):
            q.schedule("order.close", delay="1h", queue=queue)
    async with web(cluster.url) as client:
        page = await read(client, "/redis")
        overview = await read(client, "/")
    for node in nodes_of(cluster):
        assert page.source.count(f'<h2 class="whole">{node}</h2>') == 1
    assert "a cluster; each primary is shown" in page.text
    assert page.text.count("Role primary") == 3
    assert page.text.count("Slots served 16384 of 16384") == 3
    assert "It does not answer" not in page.text
    assert "The keys of 3 queues of delayq take about" in page.text
    assert len(set(page.ids)) == len(page.ids)
    assert "in 90 days" in overview.text or "Nothing yet." in overview.text


@pytest.mark.parametrize("listing", [False, True], ids=["with a queue", "with the list of queues"])
async def test_a_node_that_is_away_is_named_and_the_page_still_opens(cluster: RedisCluster, listing: bool) -> None:
    here = cluster.owner_of(LIST)
    names = [f"q{n}" for n in range(40)]
    queue = next(name for name in names if cluster.owner(name) is not here)
    lost = here if listing else cluster.owner(queue)
    gone = nodes_of(cluster)[cluster.servers.index(lost)]
    async with web(cluster.url) as client:
        with DelayQ(cluster.url) as q:
            q.schedule("order.close", delay="1h", queue=queue)
        await read(client, "/redis")
        lost.kill()
        page = await read(client, "/redis")
    assert f"It does not answer: {gone}" in page.text
    for node in nodes_of(cluster):
        assert page.source.count(f'<h2 class="whole">{node}</h2>') == (node != gone)
    assert page.text.count("Role primary") == 2
