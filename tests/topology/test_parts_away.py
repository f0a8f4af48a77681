"""One node of a cluster is away, and no replica takes over: its queues wait, the others do not."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from delayq import AsyncDelayQ, DelayQ
from delayq.core.errors import BackendUnavailable
from delayq.core.outcome import DONE
from delayq.drivers.base import Claim, Settlement
from delayq.redis import wakeups
from delayq.redis.connect import Connector, Waits
from delayq.redis.slots import slot_of
from delayq.redis.wakeups import PubSubWakeUps
from tests.support.cli import Cli, environment
from tests.support.flavours import default_flavour, require
from tests.support.servers import LocalServer, OwnServer
from tests.support.station import Station
from tests.support.topologies import RedisCluster
from tests.support.waiting import wait_until

HERE, THERE = "orders", "vip"
"""On different nodes; what belongs to no queue lies on others than the first one's."""


@pytest.fixture
def cluster() -> Iterator[RedisCluster]:
    options = {"cluster-require-full-coverage": "no"}
    with closing(RedisCluster(require(default_flavour()), replicas=False, options=options)) as cluster:
        yield cluster


def test_only_its_queues_wait(cluster: RedisCluster) -> None:
    lost = cluster.owner(HERE)
    assert cluster.owner(THERE) is not lost
    with closing(Station(cluster.url, lease_ms=2_000)) as station:
        ran, go_on = station.tape(), station.flag()

        def long(n: str) -> None:
            ran.append(n)
            assert go_on.wait(50)

        station.handles("note", lambda n: ran.append(n))  # noqa: PLW0108  (a handler takes its arguments by name)
        station.handles("long", long)
        with station.working(queues=(HERE, THERE), mover=True, threads=2):
            station.client.schedule("long", {"n": "long"}, queue=THERE, id="long")
            wait_until(lambda: "long" in ran[:], what="it runs")
            for queue in (HERE, THERE):
                station.client.schedule("note", {"n": f"before {queue}"}, queue=queue, delay="10ms")
            wait_until(lambda: len(ran) == 3, what="both have run")
            lost.kill()
            with pytest.raises(BackendUnavailable):
                station.client.schedule("note", {"n": "lost"}, queue=HERE)
            renewal = station.driver.steward((HERE, THERE)).renew("dq:test:1:a", [Claim(THERE, "nobody", "1-1")])
            assert renewal.lost == {(THERE, "nobody")}, "whom can be asked is asked"
            [error] = renewal.errors
            assert isinstance(error, BackendUnavailable)
            assert error.apart
            for n in range(5):
                station.client.schedule("note", {"n": n}, queue=THERE, delay="10ms")
                wait_until(lambda n=n: n in ran[:], timeout=30, what="the other queue is worked on")  # type: ignore[misc]
            assert ran[:].count("long") == 1, "its lease was kept all the time"
            go_on.set()
            lost.start()
            wait_until(lambda: takes(station), timeout=30, what="its queue takes jobs again")
            wait_until(lambda: "after" in ran[:], timeout=30, what="and they run")


def takes(station: Station) -> bool:
    try:
        station.client.schedule("note", {"n": "after"}, queue=HERE, id="after", delay="10ms")
    except BackendUnavailable:
        return False
    return True


def test_a_listener_leaves_a_server_that_hangs(
    own_server: OwnServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With its connections open: nothing else would ever say so."""
    monkeypatch.setattr(wakeups, "QUIET_S", 0.1)
    server = own_server()
    connector = Connector(server.url, waits=Waits(connect_ms=300, answer_ms=300, budget_ms=900))
    listener = PubSubWakeUps(connector, "delayq")
    assert listener.wait(5.0) is None
    server.stop()
    with caplog.at_level(logging.DEBUG, "delayq.wake"):
        wait_until(lambda: not listener.wait(0.05) and "does not answer" in caplog.text, what="it notices")
    server.cont()
    wait_until(lambda: listener.wait(0.05) is None, what="it listens again")
    connector.commands().publish("delayq:wake", "orders 1")
    assert list(listener.wait(5.0) or ()) == ["orders"]
    listener.close()
    connector.close()


def test_an_outcome_for_a_node_that_hangs_keeps_no_delivery_of_another_waiting(cluster: RedisCluster) -> None:
    """It is tried again, but not with each read: each try takes as long as an answer may."""
    lost = cluster.owner(HERE)
    with closing(Station(cluster.url)) as station:
        consumer = station.driver.consumer("dq:test:1:a", (HERE, THERE))
        station.client.schedule("note", queue=THERE, delay="1h")  # so that the list of queues has it
        station.client.schedule("note", queue=HERE)
        [held] = consumer.fetch((), 1).deliveries
        lost.stop()
        try:
            outcome = [Settlement(held, DONE)]
            assert list(consumer.fetch(outcome, 1).settled) == [None]
            station.client.schedule("note", queue=THERE)
            started = time.monotonic()
            fetched = consumer.fetch(outcome, 1)
            took_s = time.monotonic() - started
        finally:
            lost.cont()
        assert [one.queue for one in fetched.deliveries] == [THERE]
        assert list(fetched.settled) == [None]
        assert took_s < Waits().answer_ms / 1_000
        wait_until(
            lambda: list(consumer.fetch(outcome, 1).settled) == [True], what="it is settled when its node is back"
        )


LIST = slot_of("delayq:queues")


def port_of(cluster: RedisCluster, server: LocalServer) -> int:
    return cluster.ports[cluster.servers.index(server)]


@pytest.fixture
def apart(cluster: RedisCluster) -> tuple[RedisCluster, LocalServer, str, str]:
    """The cluster, the node that has the list of queues, a queue of another node, and one of that node."""
    listing = cluster.owner_of(LIST)
    names = [f"q{n}" for n in range(40)]
    here = next(name for name in names if cluster.owner(name) is listing)
    other = next(name for name in names if cluster.owner(name) is not listing)
    return cluster, listing, other, here


def test_a_fresh_producer_schedules_while_the_node_with_the_list_of_queues_is_away(
    apart: tuple[RedisCluster, LocalServer, str, str], caplog: pytest.LogCaptureFixture
) -> None:
    cluster, listing, queue, _ = apart
    listing.kill()
    with DelayQ(cluster.url) as fresh:
        for n in range(50):
            assert fresh.schedule("note", {"n": n}, queue=queue, delay="1h").outcome == "created"
        assert fresh.schedule_many([{"name": "note", "queue": queue, "delay": "1h"}])[0].outcome == "created"
        assert fresh.pause(queue) == 0
        fresh.resume(queue)
        assert [stats.scheduled for stats in fresh.stats(queue)] == [51]
        assert caplog.text.count("is not on the list of queues yet") == 1
        listing.start()

        def listed() -> bool:
            fresh.schedule("note", queue=queue, delay="1h")
            try:
                return queue in fresh.queues()
            except BackendUnavailable:
                return False

        wait_until(listed, timeout=40, what="a later call puts the queue on the list")


async def test_the_same_awaited(apart: tuple[RedisCluster, LocalServer, str, str]) -> None:
    cluster, listing, queue, _ = apart
    listing.kill()
    async with AsyncDelayQ(cluster.url) as fresh:
        for n in range(20):
            assert (await fresh.schedule("note", {"n": n}, queue=queue, delay="1h")).outcome == "created"
        await fresh.pause(queue)
        assert (await fresh.get("nobody", queue=queue)) is None
        with pytest.raises(
            BackendUnavailable, match=rf"127\.0\.0\.1:{port_of(cluster, listing)}, a node of the cluster"
        ):
            await fresh.queues()
    listing.start()


def test_commands_name_the_node_and_look_at_the_others(
    apart: tuple[RedisCluster, LocalServer, str, str], tmp_path: Path
) -> None:
    cluster, listing, queue, here = apart
    node = f"127.0.0.1:{port_of(cluster, listing)}"
    with closing(Cli(tmp_path, environment(DELAYQ_URL=cluster.url))) as cli:
        for name in (queue, here):
            assert cli("schedule", "note", "--queue", name, "--in", "1h").code == 0
        listing.kill()
        done = cli("schedule", "note", "--queue", queue, "--in", "1h")
        assert (done.code, done.err.count("Traceback")) == (0, 0)
        assert cli("pause", queue).code == 0
        assert cli("resume", queue).code == 0
        assert cli("stats", "--queue", queue, "--json").json["queues"][0]["scheduled"] == 2
        for words in (("stats",), ("workers",), ("schedule", "note", "--queue", here, "--in", "1h")):
            failed = cli(*words)
            assert failed.code == 5 or words == ("workers",), words
            assert node in failed.err or words == ("workers",), (words, failed.err)
        findings = cli("doctor", "--json").json["findings"]
        [away] = [found for found in findings if found["code"] == "node-away"]
        assert node in away["what"]
        assert away["level"] == "problem"
        seen = {found["where"].rpartition(" ")[2] for found in findings if found["code"] != "node-away"}
        assert {f"127.0.0.1:{port_of(cluster, one)}" for one in cluster.servers if one is not listing} <= seen
        listing.start()


def test_stats_show_the_queues_of_the_other_nodes(
    apart: tuple[RedisCluster, LocalServer, str, str], tmp_path: Path
) -> None:
    cluster, _, queue, here = apart
    lost = cluster.owner(queue)
    with closing(Cli(tmp_path, environment(DELAYQ_URL=cluster.url))) as cli:
        for name in (queue, here):
            assert cli("schedule", "note", "--queue", name, "--in", "1h").code == 0
        lost.kill()
        done = cli("stats", "--json")
        assert done.code == 5
        assert [one["queue"] for one in done.json["queues"]] == [here]
        assert f"127.0.0.1:{port_of(cluster, lost)}, a node of the cluster" in done.err
        lost.start()
