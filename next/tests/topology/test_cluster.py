"""Clients and workers on a cluster of three primaries, each with a replica."""

import asyncio
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from redis.crc import key_slot

from delayq import (
    AsyncDelayQ,
    BackendUnavailable,
    DelayQ,
    JobSearch,
    JobSpec,
    Manager,
    Settings,
    batch,
    chain,
    set_manager,
)
from delayq.core.errors import ConfigError, LoginRefused, NodeUnavailable
from delayq.core.exit_codes import ExitCode
from delayq.core.shards import shard_names
from delayq.jobs.dispatch import Sendable, _by_name
from delayq.redis.connection.slot_map import ClusterAddress
from delayq.settings.model import load_settings
from tests.support.topologies import (
    ClusterGroup,
    Server,
    cluster_group,
    command,
    failover,
    hanging_node,
    lines,
    stamping_worker,
)
from tests.support.waiting import wait_until

FORM = r"redis\+cluster://host1:6379,host2:6379"

pytestmark = pytest.mark.processes

QUEUES = [f"q{n}" for n in range(6)]
"""Every primary has some of them."""


@pytest.fixture(scope="module")
def group() -> Iterator[ClusterGroup]:
    """One cluster for all tests of this file."""
    with cluster_group() as group:
        yield group


def failing(group: ClusterGroup, queue: str, number: signal.Signals) -> AbstractContextManager[None]:
    wait_until(group.is_whole)
    old = group.owner(queue)
    return failover(old, number, lambda: group.owner(queue) is not old)


def slot_of(queue: str) -> int:
    return key_slot(f"{{{queue}}}".encode())


def test_each_queue_is_on_the_node_that_has_its_slot(group: ClusterGroup) -> None:
    with DelayQ(group.url) as client:
        refs = [client.schedule("n", queue=queue, id="one", delay="1h") for queue in QUEUES]
        assert [ref.outcome for ref in refs] == ["created"] * len(QUEUES)
        assert {stats.queue: stats.scheduled for stats in client.stats()} == dict.fromkeys(QUEUES, 1)
        assert client.cancel("one", queue="q3") == "cancelled"
        for queue in QUEUES:
            owner = group.owner(queue)
            assert int(command(owner, "EXISTS", f"delayq:{{{queue}}}:jobs")) == (queue != "q3")
            client.clear(queue)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_client_follows_a_failover(group: ClusterGroup, number: signal.Signals) -> None:
    with DelayQ(settings=load_settings(url=group.url, durability="replicas:1")) as careful:
        before = careful.schedule("n", queue="q0", delay="1h")
    with DelayQ(group.url) as client:
        assert client.get(before.id, queue="q0")
        with failing(group, "q0", number):
            after = client.schedule("n", queue="q0", delay="1h")
            found = [client.get(ref.id, queue="q0") for ref in (before, after)]
    assert [info.state for info in found if info] == ["scheduled", "scheduled"]


def test_an_async_client_follows_a_failover(group: ClusterGroup) -> None:
    async def story() -> list[str]:
        async with AsyncDelayQ(group.url) as client:
            first = await client.schedule("n", queue="q0", delay="1h")
            with failing(group, "q0", signal.SIGKILL):
                return [first.outcome, (await client.schedule("n", queue="q0", delay="1h")).outcome]

    assert asyncio.run(story()) == ["created", "created"]


@pytest.fixture(params=["ip", "hostname", "unknown-endpoint"])
def way_of_naming(request: pytest.FixtureRequest, group: ClusterGroup) -> Iterator[str]:
    """How nodes name each other to clients. They have no hostnames here, so they write '?' instead."""
    wait_until(group.is_whole)
    for server in group.servers:
        command(server, "CONFIG", "SET", "cluster-preferred-endpoint-type", request.param)
    yield request.param
    for server in group.servers:
        command(server, "CONFIG", "SET", "cluster-preferred-endpoint-type", "ip")


def test_a_moving_slot_is_followed(group: ClusterGroup, way_of_naming: str) -> None:
    """While a slot moves, the nodes answer ASK or TRYAGAIN, and after it MOVED."""
    queue = f"moving-{way_of_naming}"
    source = group.owner(queue)
    target = next(group.owner(queue) for queue in QUEUES if group.owner(queue) is not source)
    slot = slot_of(queue)

    def end_move() -> None:
        keys = command(source, "CLUSTER", "GETKEYSINSLOT", slot, 100)
        command(source, "MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *keys)
        for server in (target, source):
            command(server, "CLUSTER", "SETSLOT", slot, "NODE", command(target, "CLUSTER", "MYID"))

    with DelayQ(group.url) as client:
        client.schedule("n", queue=queue, id="one", delay="1h")
        command(target, "CLUSTER", "SETSLOT", slot, "IMPORTING", command(source, "CLUSTER", "MYID"))
        command(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", command(target, "CLUSTER", "MYID"))
        end = threading.Timer(0.5, end_move)
        end.start()
        assert client.schedule("n", queue=queue, id="two", delay="1h").outcome == "created"
        end.join()
        assert client.schedule("n", queue=queue, id="three", delay="1h").outcome == "created"
        assert client.stats(queue)[0].scheduled == 3


def test_a_hanging_node_fails_its_own_calls_only(group: ClusterGroup) -> None:
    wait_until(group.is_whole)
    owner = group.owner("q1")
    other = next(queue for queue in QUEUES if group.owner(queue) is not owner)
    with DelayQ(group.url) as client:
        client.schedule("n", queue=other, delay="1h")
        client.schedule("n", queue="q1", delay="1h")
        with hanging_node(group, owner):
            assert client.schedule("n", queue=other, delay="1h").outcome == "created"
            with pytest.raises(NodeUnavailable, match=r"did not reply|cannot be reached") as failed:
                client.get("x", queue="q1")
            page = client.search(JobSearch(queues=["q1", other]))
        assert failed.value.node.endswith(f":{owner.port}")
        assert {job.queue for job in page.jobs} == {other}
        (error,) = page.errors.values()
        assert error.message.startswith("The search is incomplete, because the queue 'q1' could not be read. Redis")


def test_a_worker_runs_the_jobs_of_all_nodes_and_follows_a_failover(group: ClusterGroup, tmp_path: Path) -> None:
    wait_until(group.is_whole)
    log = tmp_path / "log"
    with stamping_worker(group.url, tmp_path, *QUEUES), DelayQ(group.url) as client:
        for queue in QUEUES:
            client.schedule("stamp", {"path": str(log), "text": queue}, queue=queue, delay="300ms")
        wait_until(lambda: sorted(lines(log)) == QUEUES)
        with failing(group, "q2", signal.SIGKILL):
            client.schedule("stamp", {"path": str(log), "text": "after"}, queue="q2")
            wait_until(lambda: lines(log)[-1] == "after")


def test_a_queue_with_shards_uses_all_nodes(group: ClusterGroup, tmp_path: Path) -> None:
    wait_until(group.is_whole)
    log = tmp_path / "log"
    shards = shard_names("spread", 8)
    assert len({group.owner(shard).port for shard in shards}) == 3
    with DelayQ(group.url) as client:
        client.queue_set("spread", shards=8)
        ids = [f"job-{n}" for n in range(100)]
        data = {"path": str(log), "text": "ran"}
        specs = [JobSpec(name="stamp", id=job_id, data=data, queue="spread", delay="500ms") for job_id in ids]
        client.schedule_many(specs)
        kept = [int(command(group.owner(shard), "HLEN", f"delayq:{{{shard}}}:jobs")) for shard in shards]
        assert sum(kept) == 100 and all(kept)
        assert [client.cancel(job_id, queue="spread") for job_id in ids[:50]] == ["cancelled"] * 50
        with stamping_worker(group.url, tmp_path, "spread"):
            wait_until(lambda: lines(log) == ["ran"] * 50)
        wait_until(lambda: not client.stats("spread")[0].reserved)
        assert client.queue_set("spread", shards=1).shards == 1


def test_chains_and_batches_cross_all_nodes(group: ClusterGroup, tmp_path: Path) -> None:
    wait_until(group.is_whole)
    log = tmp_path / "log"
    set_manager(manager := Manager(Settings(url=SecretStr(group.url))))
    client = manager.connection().client

    def job(text: str, queue: str, **more: Any) -> Sendable:
        return _by_name("stamp", {"path": str(log), "text": text})._with(queue=queue, **more)

    try:
        client.queue_set("parts", shards=4)
        members = [job(f"m{n}", "parts" if n % 2 else QUEUES[n % 6]) for n in range(60)]
        whole = batch([*members, chain(job("c1", "q0"), job("c2", "q1", unique="key"))], then=job("then", "q2"))
        with stamping_worker(group.url, tmp_path, *QUEUES, "parts"):
            chain(
                *[job(f"{n}", queue) for n, queue in enumerate(QUEUES)], job("6", "parts", unique="key"), whole
            ).dispatch()
            wait_until(lambda: "then" in lines(log))
            ran = lines(log)
            assert ran[:7] == [f"{n}" for n in range(7)]
            assert sorted(ran[7:]) == sorted([f"m{n}" for n in range(60)] + ["c1", "c2", "then"])
            (info,) = client.batches.list()
            assert (info.state, info.succeeded) == ("finished", 61)
            owner = group.owner("q3")
            other = next(queue for queue in QUEUES if group.owner(queue) is not owner)
            third = next(queue for queue in QUEUES if group.owner(queue) not in (owner, group.owner(other)))
            with hanging_node(group, owner):
                chain(job("a", other), job("late", "q3")).dispatch()
                chain(job("b", other), job("c", third)).dispatch()
                wait_until(lambda: "c" in lines(log))
            wait_until(lambda: "late" in lines(log))
        client.queue_set("parts", shards=1)
    finally:
        set_manager(None)
        manager.close()


def test_a_worker_starts_without_a_node_that_hangs(group: ClusterGroup, tmp_path: Path) -> None:
    wait_until(group.is_whole)
    log = tmp_path / "log"
    owner = group.owner("q1")
    others = [queue for queue in QUEUES if group.owner(queue) is not owner]
    with DelayQ(group.url) as client, hanging_node(group, owner), stamping_worker(group.url, tmp_path, *QUEUES):
        for queue in others:
            client.schedule("stamp", {"path": str(log), "text": queue}, queue=queue)
        wait_until(lambda: sorted(lines(log)) == others, patience=40)
    wait_until(group.is_whole)


def test_jobs_of_other_nodes_are_in_time_while_a_node_hangs(group: ClusterGroup, tmp_path: Path) -> None:
    wait_until(group.is_whole)
    log = tmp_path / "log"
    owner = group.owner("q1")
    others = [queue for queue in QUEUES if group.owner(queue) is not owner]
    with stamping_worker(group.url, tmp_path, *QUEUES), DelayQ(group.url) as client:
        client.schedule("stamp", {"path": str(log), "text": "first"}, queue="q1")
        wait_until(lambda: lines(log) == ["first"])
        with hanging_node(group, owner):
            time.sleep(3)
            for queue in others:
                client.schedule("stamp", {"path": str(log), "text": queue}, queue=queue, delay="100ms")
            wait_until(lambda: sorted(lines(log)[1:]) == others)
        wait_until(group.is_whole)  # on a busy machine the replica may still become the primary, and jobs get lost
        client.schedule("stamp", {"path": str(log), "text": "last"}, queue="q1")
        wait_until(lambda: lines(log)[-1] == "last")


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("redis+cluster://h1/1", "a Redis Cluster has only database 0"),
        ("redis+cluster://h1,h2?db=2", "a Redis Cluster has only database 0"),
        ("redis+cluster://h1:port", f"url 'redis\\+cluster://h1:port' is not the address .* Write {FORM}"),
        (
            "redis+cluster://:pw@127.0.0.1:99999",
            r"url 'redis\+cluster://:\*\*\*@127\.0\.0\.1:99999' is not the address",
        ),
        ("redis+cluster://", f"is not the address .* Write {FORM}"),
        ("redis+cluster://h1,", "is not the address"),
        ("redis+cluster://a b:1", "is not the address"),
        ("redis+cluster://h1?prot=3", "has an option that delayq does not support"),
    ],
)
def test_addresses_that_cannot_be_used(url: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        ClusterAddress(url)


@pytest.mark.parametrize("of_list", [True, False])
def test_a_plain_address_of_a_node_is_refused_with_the_right_form(group: ClusterGroup, of_list: bool) -> None:
    """Also the node with the list of queues gets no queue of such a call."""
    with_list = group.owner_of_slot(key_slot(b"delayq:queues"))
    node = with_list if of_list else next(one for one in group.servers[:3] if one is not with_list)
    url = f"redis://127.0.0.1:{node.port}"
    with DelayQ(url) as client:
        queues = [*(queue for queue in QUEUES if group.owner(queue) is not node), "default"]
        calls: list[Callable[[], object]] = [partial(client.get, "x"), client.stats]
        calls += [partial(client.schedule, "n", queue=f"left-{queue}", delay="1h") for queue in queues]
        for call in calls:
            with pytest.raises(LoginRefused) as raised:
                call()
            assert str(raised.value) == (
                f"The server at {url} is a node of a Redis Cluster. The request was not sent. "
                "Write redis+cluster://host1:6379,host2:6379 instead."
            )
            assert raised.value.exit_code == ExitCode.WRONG_USE

    async def story() -> None:
        async with AsyncDelayQ(url) as client:
            await client.schedule("n", queue="left", delay="1h")

    with pytest.raises(LoginRefused, match="is a node of a Redis Cluster"):
        asyncio.run(story())
    assert not [queue for queue in command(with_list, "SMEMBERS", "delayq:queues") if queue.startswith("left")]


def test_a_single_server_is_refused_with_the_right_form(tmp_path: Path) -> None:
    server = Server(tmp_path, password=None)
    try:
        with (
            DelayQ(f"redis+cluster://127.0.0.1:{server.port}") as client,
            pytest.raises(ConfigError, match=r"is not a node of a cluster: .* Write the address of a single server"),
        ):
            client.stats()
    finally:
        server.end()


def test_without_any_node_the_nodes_are_named() -> None:
    url = "redis+cluster://127.0.0.1:1,127.0.0.1:2"
    with (
        DelayQ(url) as client,
        pytest.raises(BackendUnavailable, match=r"answered \(redis://127.0.0.1:1, redis://127.0.0.1:2\)"),
    ):
        client.schedule("n", delay="1h")
