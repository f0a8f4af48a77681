"""A node of a cluster hangs, its connections open: the queues of the other nodes do not notice.

Nothing says that it is gone, so everything that is sent to it costs whoever sent it as long as an answer may take.
It hangs for five seconds; with `DELAYQ_CHAOS=full` for twenty.
"""

from __future__ import annotations

import os
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing

import pytest

from delayq.core.errors import BackendUnavailable, OutcomeUnknown
from delayq.core.outcome import GiveUp
from delayq.drivers.base import Promotion, Settlement
from delayq.drivers.redis_consumer import RedisConsumer
from delayq.drivers.redis_streams import RedisStreams, RedisStreamsFactory
from delayq.loops.mover import Mover
from delayq.redis import hanging
from delayq.redis.connect import Connector, Waits
from delayq.redis.hanging import Hanging
from delayq.redis.keys import Globals
from delayq.redis.slots import slot_of
from delayq.redis.wakeups import PubSubWakeUps
from tests.support.fakes import Clock
from tests.support.flavours import default_flavour, require
from tests.support.machine import fair_clock, wait_fairly
from tests.support.servers import LocalServer
from tests.support.station import Station
from tests.support.tape import Flag
from tests.support.topologies import HOST, RedisCluster, free_ports
from tests.support.waiting import wait_until

HERE, BESIDE, THERE = "orders", "q0", "vip"
"""The first two are on one node, the third on another."""

PER_SECOND = 25
JOBS = PER_SECOND * (20 if os.environ.get("DELAYQ_CHAOS") == "full" else 5)
FOUND_OUT_S = 1.5
"""Half a second for the mover, which may be over before the worker's begins, and a moment."""
AT_ONCE_S = 0.3
"""Far less than it takes to find out that a node hangs."""
BACK_S = 5.0


@pytest.fixture
def cluster() -> Iterator[RedisCluster]:
    options = {"cluster-require-full-coverage": "no"}
    with closing(RedisCluster(require(default_flavour()), replicas=False, options=options)) as cluster:
        assert cluster.owner(HERE) is cluster.owner(BESIDE) is not cluster.owner(THERE)
        yield cluster


@pytest.fixture
def lost(cluster: RedisCluster) -> Iterator[LocalServer]:
    """The node that will hang; it goes on at the end."""
    lost = cluster.owner(HERE)
    yield lost
    lost.cont()


@pytest.fixture
def station(cluster: RedisCluster, lost: LocalServer) -> Iterator[Station]:
    with closing(Station(cluster.url)) as station:
        yield station


@pytest.fixture
def driver(station: Station) -> Iterator[RedisStreams]:
    """As loops and workers have them."""
    with closing(RedisStreamsFactory(station.url, station.options)()) as driver:
        yield driver


def took_s(started: float) -> float:
    return fair_clock() - started


@pytest.mark.timed
@pytest.mark.parametrize("everything", [False, True], ids=["a queue's", "also the one of all switches"])
def test_jobs_on_other_nodes_start_in_time(
    cluster: RedisCluster, record_property: Callable[[str, object], None], *, everything: bool
) -> None:
    """Under a lease that is shorter than two waits for an answer, while an outcome of the node's is to be settled.

    When it goes on, its own start within five.
    """
    here, there = two_queues(cluster, everything=everything)
    lost = cluster.owner(here)
    with closing(Station(cluster.url, lease_ms=3_000)) as station, ExitStack() as stack:
        ran, go_on = station.tape(), station.flag()

        def long() -> None:
            ran.append(("long", time.time()))
            assert go_on.wait(50)

        station.handles("note", lambda n: ran.append((n, time.time())))
        station.handles("long", long)
        for _ in range(2):
            stack.enter_context(station.working(queues=(here, there), mover=True, threads=2))
        for n, queue in enumerate((here, there)):
            station.client.schedule("note", {"n": -1 - n}, queue=queue, delay="10ms")
        station.client.schedule("long", queue=here)
        wait_until(lambda: len(ran) == 3, what="both have run, and one runs")
        stack.callback(lost.cont)
        due = flow(station, there, go_on, lost)
        wait_until(lambda: len(ran) >= 3 + JOBS, timeout=60, what="all of the other queue have run")
        lost.cont()
        wait_until(lambda: takes(station, here), what="the queue takes jobs again")
        wait_fairly(lambda: any(n == "back" for n, _ in ran[:]), within=BACK_S, what="and they run")
        late_s = sorted(at - due[n] for n, at in ran[:] if n in due)
        record_property("chaos", told(late_s))
        assert late_s[-JOBS // 100 - 1] < FOUND_OUT_S, "p99"
        assert "stood still" not in station.said(), "whoever waits for it is not taken for a process that is frozen"
        assert [n for n, times in Counter(n for n, _ in ran[:]).items() if times > 1 and n in due] == []


def two_queues(cluster: RedisCluster, *, everything: bool) -> tuple[str, str]:
    """On different nodes; `everything`: the first one where the switches of all workers lie, else elsewhere."""
    switches = cluster.owner_of(slot_of(Globals("delayq").control))
    names = [f"q{n}" for n in range(100)]
    here = next(name for name in names if (cluster.owner(name) is switches) is everything)
    return here, next(name for name in names if cluster.owner(name) is not cluster.owner(here))


def flow(station: Station, queue: str, go_on: Flag, lost: LocalServer) -> dict[int, float]:
    """Jobs at an even pace; a second after the first the node stops, and what runs there may end. When each was due."""
    due = dict[int, float]()
    for n in range(JOBS):
        if n == PER_SECOND:
            lost.stop()
            go_on.set()
        station.client.schedule("note", {"n": n}, queue=queue, delay="500ms")
        due[n] = time.time() + 0.5
        time.sleep(1 / PER_SECOND)  # the pace of a producer: nothing waits for it
    return due


def told(late_s: Sequence[float]) -> str:
    """For the summary of the run."""
    p50, p99, latest = (late_s[n] * 1000 for n in (JOBS // 2, -JOBS // 100 - 1, -1))
    return f"a node hangs, {JOBS} jobs beside it: p50 {p50:.1f} ms late, p99 {p99:.0f} ms, the latest {latest:.0f} ms"


def takes(station: Station, queue: str) -> bool:
    try:
        station.client.schedule("note", {"n": "back"}, queue=queue, id="back")
    except (BackendUnavailable, OutcomeUnknown):
        return False
    return True


@pytest.mark.timed
def test_a_mover_waits_for_it_once(station: Station, driver: RedisStreams, lost: LocalServer) -> None:
    for queue in (HERE, BESIDE, THERE):
        station.client.schedule("note", queue=queue, delay="1h")
    clock, moved = Clock(), list[Promotion]()
    mover = Mover(driver, (HERE, BESIDE, THERE), clock, told=moved.append)
    mover.run_once()
    lost.stop()
    turns_s = []
    for _ in range(4):
        clock.now += 10.0
        moved.clear()
        started = fair_clock()
        mover.run_once()
        turns_s.append(took_s(started))
        assert len(moved) == 1, "the third queue had its turn"
    assert turns_s[0] < AT_ONCE_S + Waits().silent_ms / 1000, "two queues, one wait"
    assert max(turns_s[1:]) < AT_ONCE_S
    mover.close()


@pytest.mark.timed
def test_an_outcome_whose_record_lies_there_keeps_no_delivery_waiting(
    station: Station, driver: RedisStreams, lost: LocalServer
) -> None:
    """Of a job that failed it is read what failed before; so that is asked of no node that hangs."""
    consumer = driver.consumer("dq:test:1:a", (HERE, THERE))
    station.client.schedule("note", queue=THERE, delay="1h")  # so that the list of queues has it
    station.client.schedule("note", queue=HERE)
    [held] = consumer.fetch((), 1).deliveries
    lost.stop()
    outcome = [Settlement(held, GiveUp(1, 1, ValueError("no")))]
    with pytest.raises((BackendUnavailable, OutcomeUnknown)):
        consumer.fetch(outcome, 1)
    station.client.schedule("note", queue=THERE)
    started = fair_clock()
    fetched = consumer.fetch(outcome, 1)
    assert took_s(started) < AT_ONCE_S
    assert [one.queue for one in fetched.deliveries] == [THERE]
    assert list(fetched.settled) == [None]
    lost.cont()
    wait_until(lambda: is_settled(consumer, outcome), what="it is settled when its node is back")


def is_settled(consumer: RedisConsumer, outcome: Sequence[Settlement]) -> bool:
    try:
        return list(consumer.fetch(outcome, 1).settled) == [True]
    except (BackendUnavailable, OutcomeUnknown):  # a worker tries again, too
        return False


@pytest.mark.timed
def test_a_worker_may_begin_meanwhile(station: Station, driver: RedisStreams, lost: LocalServer) -> None:
    for queue in (HERE, THERE):
        station.client.schedule("note", queue=queue)
    lost.stop()
    consumer = driver.consumer("dq:test:1:a", (HERE, THERE))
    assert [one.queue for one in consumer.fetch((), 2).deliveries] == [THERE]
    lost.cont()
    wait_until(
        lambda: [one.queue for one in consumer.fetch((), 2).deliveries] == [HERE], what="its queue is read as well"
    )


@pytest.mark.timed
def test_a_listener_goes_to_another_node(cluster: RedisCluster) -> None:
    with closing(Connector(cluster.url, hasty=True)) as connector:
        listener = PubSubWakeUps(connector, "delayq")
        assert listener.wait(5.0) is None
        heard_of = listener._listener
        assert heard_of is not None
        port = heard_of.connection_pool.connection_kwargs["port"]
        lost = cluster.servers[cluster.ports.index(port)]
        lost.stop()
        wait_fairly(lambda: listener.wait(0.05) is None, within=4.0, what="it listens elsewhere")
        other = next(server for server in cluster.servers if server is not lost)
        cluster.say(other, "PUBLISH", "delayq:wake", "orders 1")
        assert list(listener.wait(5.0) or ()) == ["orders"]
        lost.cont()
        listener.close()


def test_it_hangs_until_anything_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when the first question was lost on the way."""
    monkeypatch.setattr(hanging, "AGAIN_S", 0.05)
    nodes = Hanging()
    with socket.create_server((HOST, 0)) as server:
        node = (HOST, server.getsockname()[1])
        assert node not in nodes
        nodes.met(node)
        assert node in nodes, "a connection is taken by the system, not by the program"
        first, _ = server.accept()
        wait_until(lambda: node in nodes and first.recv(16) == b"PING\r\n", what="it is asked")
        server.settimeout(0.01)
        again: list[socket.socket] = []

        def asked_again() -> bool:
            assert node in nodes
            try:
                again.append(server.accept()[0])
            except TimeoutError:
                return False
            return True

        wait_until(asked_again, what="it is asked again")
        again[-1].send(b"-LOADING\r\n")
        wait_until(lambda: node not in nodes, what="any answer is one")
        for one in (first, *again):
            one.close()


def test_who_looks_seldom_finds_the_answer_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """A question must not be given up for the next one at the very look that could have heard."""
    monkeypatch.setattr(hanging, "AGAIN_S", 0.0)
    nodes = Hanging()
    with socket.create_server((HOST, 0)) as server:
        node = (HOST, server.getsockname()[1])
        nodes.met(node)
        first, _ = server.accept()
        with first:
            assert first.recv(16) == b"PING\r\n"
            first.send(b"+PONG\r\n")
            assert node not in nodes


def test_a_node_that_is_gone_does_not_hang() -> None:
    nodes = Hanging()
    node = (HOST, free_ports(1)[0])
    nodes.met(node)
    wait_until(lambda: node not in nodes, what="the system says so")


@pytest.mark.timed
def test_a_limit_is_waited_for(station: Station, driver: RedisStreams, lost: LocalServer) -> None:
    """The job that asks waits, and nobody else: as long as a failover may take."""
    connector = Connector(station.url, waits=Waits(), hasty=True)
    station.client.schedule("note", queue=HERE, delay="1h")
    lost.stop()
    with pytest.raises((BackendUnavailable, OutcomeUnknown)):
        RedisStreams(connector, station.options).promote(HERE)
    started = fair_clock()
    with pytest.raises(BackendUnavailable):
        RedisStreams(connector, station.options).promote(HERE)
    assert took_s(started) < AT_ONCE_S
    waited_since = time.monotonic()
    with pytest.raises(BackendUnavailable):
        RedisStreams(connector.patient(), station.options).promote(HERE)
    assert time.monotonic() - waited_since > 2.0
    connector.close()
