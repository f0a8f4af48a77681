"""The client for a cluster: wrong maps, dead hosts, many queues to wait for, few connections."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest

from delayq.core.errors import BackendUnavailable, ConfigError
from delayq.core.options import Options
from delayq.drivers.redis_streams import RedisStreams
from delayq.redis import many_waits
from delayq.redis.aio import AsyncClient
from delayq.redis.client import Client
from delayq.redis.connect import Connector
from delayq.redis.slots import SLOTS, SlotMap, slot_of, slot_of_command
from tests.support.servers import OwnServer, connect
from tests.support.topologies import Group, Kind, free_ports, slot_of_queue
from tests.support.waiting import wait_until

QUEUES = tuple(f"q{n}" for n in range(7))


@pytest.fixture
def topology() -> Kind:
    return Kind.CLUSTER


@pytest.fixture
def connector(redis_url: str) -> Iterator[Connector]:
    with closing(Connector(redis_url)) as connector:
        yield connector


@pytest.mark.parametrize("queue", ["orders", "a", "a:b.c-d_e", "shard#3"])
def test_the_slot_is_that_of_the_specification(queue: str) -> None:
    assert slot_of(f"delayq:{{{queue}}}:jobs") == slot_of_queue(queue)
    assert slot_of(queue) == slot_of_queue(queue), "no braces, or nothing in them: all of it counts"
    assert slot_of(f"{{}}{{{queue}}}".encode()) == slot_of_queue(f"{{}}{{{queue}}}")


def test_the_slot_of_a_command_is_its_keys() -> None:
    orders = slot_of("{orders}")
    key = "delayq:{orders}:stream"
    for words in (
        ("EVALSHA", "0" * 40, 2, key, "delayq:{orders}:jobs", "x"),
        ("XREADGROUP", "GROUP", "delayq", "me", "COUNT", 1, "STREAMS", key, ">"),
        ("XREADGROUP", "GROUP", "delayq", "me", b"STREAMS", key, ">"),
        ("XINFO", "GROUPS", key),
        ("HGET", key, "x"),
    ):
        assert slot_of_command(words) == orders
    assert [slot_of_command(words) for words in (("TIME",), ("WAIT", 1, 5), ("INFO", "memory"))] == [None] * 3


def test_a_map_that_is_wrong_costs_a_redirection_and_no_more(connector: Connector) -> None:
    client = Client(connector, Options())
    client.schedule("n", id="a", queue="q0", delay="1h")
    nodes = connector._directory.map.primaries
    owners = connector._directory.map.owners
    connector._directory.map = SlotMap(tuple(nodes[(nodes.index(one) + 1) % 3] for one in owners if one))
    refs = client.schedule_many(
        [{"name": "n", "id": f"b{n}", "queue": queue, "delay": "1h"} for n, queue in enumerate(QUEUES)]
    )
    assert len(refs) == len(QUEUES)
    assert client.schedule("n", id="a", queue="q0").outcome == "kept"
    assert connector._directory.owner(slot_of("{q0}")) == owners[slot_of("{q0}")]


def test_one_living_host_in_the_url_is_enough(redis_url: str) -> None:
    dead = free_ports(2)
    url = f"redis+cluster://127.0.0.1:{dead[0]},127.0.0.1:{dead[1]},{redis_url.rpartition(',')[2]}"

    async def awaited() -> None:
        connector = Connector(url)
        await AsyncClient(connector, Options()).schedule("n", id="b", queue="q1", delay="1h")
        await connector.aclose()

    with closing(Connector(url)) as connector:
        assert Client(connector, Options()).schedule("n", queue="q1", delay="1h").outcome == "created"
    asyncio.run(awaited())


def test_nobody_is_there_or_it_is_no_cluster(own_server: OwnServer) -> None:
    [port, dead] = free_ports(2)
    own_server(options={"port": str(port), "bind": "127.0.0.1"})
    with closing(Connector(f"redis+cluster://127.0.0.1:{dead}")) as connector, pytest.raises(BackendUnavailable):
        Client(connector, Options()).schedule("n")
    with (
        closing(Connector(f"redis+cluster://127.0.0.1:{port}")) as connector,
        pytest.raises(ConfigError, match="is no cl"),
    ):
        Client(connector, Options()).schedule("n")


def test_few_connections_to_each_node_serve_many_threads(redis_url: str, group: Group) -> None:
    with closing(Connector(redis_url, connections=3)) as connector:
        client = Client(connector, Options())
        with ThreadPoolExecutor(12) as pool:
            answers = pool.map(lambda n: client.schedule("n", queue=QUEUES[n % 7], delay="1h").outcome, range(240))
            assert Counter(answers) == {"created": 240}
        for server in group.primaries():
            with connect(server.url) as admin:
                names = [row["name"] for row in admin.client_list() if row["name"].startswith("delayq-commands")]
            assert 0 < len(names) <= 3


@pytest.mark.parametrize("most", [24, 2])
def test_waiting_for_many_queues_brings_each_entry_once(
    connector: Connector, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """Whichever come at the same time, and also when only some can be waited for at once."""
    monkeypatch.setattr(many_waits, "MOST", most)
    driver, client = RedisStreams(connector, Options()), Client(connector, Options())
    consumer = driver.consumer("dq:test:1:a", QUEUES)
    found: list[Any] = []

    def schedule() -> None:
        for n in range(42):
            client.schedule("n", id=f"j{n}", queue=QUEUES[n % 7])

    thread = threading.Thread(target=schedule)
    thread.start()

    def all_found() -> bool:
        found.extend((job.queue, job.id) for job in consumer.wait(0.2).deliveries)
        return len(found) >= 42

    wait_until(all_found, what="all have come")
    thread.join()
    assert not consumer.wait(0.05).deliveries
    assert Counter(found) == Counter((QUEUES[n % 7], f"j{n}") for n in range(42))
    assert sum(stats.reserved for stats in client.stats()) == 42, "nothing was taken that nobody saw"
    consumer.hand_back(consumer.replay().deliveries)
    consumer.close()


def test_every_node_is_reached_under_the_tls_of_the_url() -> None:
    with closing(Connector("rediss+cluster://127.0.0.1:1?ssl_min_version=1.3&ssl_cert_reqs=none")) as connector:
        given = connector.commands().connection_pool.connection_kwargs
    assert (given["ssl_min_version"], given["ssl_cert_reqs"]) == (ssl.TLSVersion.TLSv1_3, "none")


def test_every_slot_has_an_owner(connector: Connector) -> None:
    Client(connector, Options()).queues()
    assert connector._directory.map.whole
    assert len(connector._directory.map.owners) == SLOTS
