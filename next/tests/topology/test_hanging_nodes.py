"""Commands, movers and workers while a node of a cluster hangs or fails."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from redis.crc import key_slot
from typer.testing import CliRunner

from delayq import AsyncDelayQ, BackendUnavailable, DelayQ
from delayq.cli import main as cli
from delayq.core.errors import NodeError, NodeOutcomeUnknown
from delayq.redis.connection.factory import make_executor, parse_address
from delayq.redis.keys import Keys
from delayq.redis.worker.worker_registry import RedisWorkerRegistry
from tests.support.topologies import (
    ClusterGroup,
    cluster_group,
    command,
    hanging,
    hanging_node,
    lines,
    stamping_worker,
)
from tests.support.waiting import wait_until
from tests.support.workers import end_worker

pytestmark = pytest.mark.processes

QUEUES = [f"q{n}" for n in range(6)]
"""Every primary has some of them."""


@pytest.fixture(scope="module")
def group() -> Iterator[ClusterGroup]:
    """One cluster for all tests of this file. Its primaries stay the same, whichever of them hangs."""
    with cluster_group(may_fail_over=False) as group:
        yield group


def test_a_hanging_node_is_named_and_a_search_is_never_unknown(group: ClusterGroup) -> None:
    wait_until(group.is_whole)
    with_list = group.owner_of_slot(key_slot(b"delayq:queues"))
    owner = next(group.owner(queue) for queue in QUEUES if group.owner(queue) is not with_list)
    theirs = [queue for queue in QUEUES if group.owner(queue) is owner]
    other = next(queue for queue in QUEUES if group.owner(queue) is not owner)
    with DelayQ(group.url) as client:
        for queue in QUEUES:
            client.schedule("n", queue=queue, delay="1h")
        with hanging_node(group, owner):
            rows = {stats.queue: stats for stats in client.stats() if stats.queue in QUEUES}
            with pytest.raises(BackendUnavailable, match="other queues could not be searched"):
                client.look_elsewhere("nowhere", queue=other)
    assert [queue for queue in QUEUES if rows[queue].error] == theirs
    assert all(str(owner.port) in rows[queue].error for queue in theirs)
    assert rows[other].scheduled >= 1


def test_stats_names_the_hanging_node_that_has_the_list_of_queues(group: ClusterGroup) -> None:
    wait_until(group.is_whole)
    owner = group.owner_of_slot(key_slot(b"delayq:queues"))
    other = next(queue for queue in QUEUES if group.owner(queue) is not owner)
    with DelayQ(group.url) as client:
        client.schedule("n", queue=other, delay="1h")
    with hanging_node(group, owner):
        of_all = CliRunner().invoke(cli.app, ["--url", group.url, "stats"])
        of_one = CliRunner().invoke(cli.app, ["--url", group.url, "stats", "--queue", other])
    assert isinstance(of_all.exception, NodeError)
    assert of_all.exception.exit_code == 5
    words = f"The list of queues cannot be read. Redis at redis://127.0.0.1:{owner.port}"
    assert of_all.exception.message.startswith(words)
    assert of_all.exception.hint == "`delayq stats --queue NAME` still works for a queue whose node answers."
    assert (of_one.exit_code, other in of_one.output) == (0, True)


def test_workers_names_the_hanging_node_that_has_the_list_of_workers(group: ClusterGroup) -> None:
    wait_until(group.is_whole)
    owner = group.owner_of_slot(key_slot(b"delayq:workers"))
    with hanging_node(group, owner):
        ended = CliRunner().invoke(cli.app, ["--url", group.url, "workers"])
    assert isinstance(ended.exception, NodeError)
    assert str(ended.exception).startswith(
        f"The list of workers cannot be read. Redis at redis://127.0.0.1:{owner.port} "
    )
    assert ended.exception.hint == "Check that the server is running and that the url is right."


def test_workers_shows_the_other_nodes_and_fails_if_a_process_is_missing(group: ClusterGroup) -> None:
    wait_until(group.is_whole)
    with_list = group.owner_of_slot(key_slot(b"delayq:workers"))
    names = [f"dq:a-{n}:{n}:x" for n in range(9)]
    owners = {name: group.owner_of_slot(key_slot(f"delayq:worker:{name}".encode())) for name in names}
    owner = next(one for one in owners.values() if one is not with_list)
    RedisWorkerRegistry(make_executor(parse_address(group.url)), Keys()).announce(
        {name: {"queues": ["q"], "host": name} for name in names}, int(time.time() * 1000)
    )
    with hanging_node(group, owner):
        ended = CliRunner().invoke(cli.app, ["--url", group.url, "workers"])
        as_json = CliRunner().invoke(cli.app, ["--url", group.url, "workers", "--json"])
    assert (ended.exit_code, as_json.exit_code) == (1, 1)
    shown = [line.split()[:1] for line in ended.stdout.splitlines()]
    assert shown[0] == ["HOST"]
    assert [] not in shown
    for n, name in enumerate(names):
        words = f"A process of the worker on a-{n} (pid {n}) cannot be shown."
        assert (words in ended.stderr) == (owners[name] is owner)
        assert ([name] in shown) == (owners[name] is not owner)
        assert name in as_json.stdout


def test_a_mover_that_starts_beside_a_dead_node_serves_the_others(group: ClusterGroup, tmp_path: Path) -> None:
    """With the node of the list of queues missing, `move --once` fails."""
    wait_until(group.is_whole)
    with_list = group.owner_of_slot(key_slot(b"delayq:queues"))
    owner = next(group.owner(queue) for queue in QUEUES if group.owner(queue) is not with_list)
    others = [queue for queue in QUEUES if group.owner(queue) is not owner]
    with DelayQ(group.url) as client:
        for queue in QUEUES:
            client.clear(queue)
            client.schedule("n", queue=queue, id="due", delay="500ms")
        time.sleep(0.5)
        with hanging_node(group, owner):
            once = CliRunner().invoke(cli.app, ["--url", group.url, "move", "--once"])
            assert (once.exit_code, once.stdout) == (1, f"{len(others)} jobs moved\n")
            for queue in others:
                client.schedule("n", queue=queue, id="later", delay="1ms")
            mover = subprocess.Popen([sys.executable, "-m", "delayq", "--url", group.url, "move"], cwd=tmp_path)
            try:
                wait_until(lambda: all(client.stats(queue)[0].ready == 2 for queue in others))
                assert mover.poll() is None
            finally:
                end_worker(mover)
        wait_until(group.is_whole)
        with hanging_node(group, with_list):
            once = CliRunner().invoke(cli.app, ["--url", group.url, "move", "--once"])
    assert (once.exit_code, once.stdout) == (1, "0 jobs moved\n")


def test_a_command_waits_once_for_a_hanging_node(group: ClusterGroup) -> None:
    """The search for an id reads the list of queues, and then the queues of all nodes."""
    wait_until(group.is_whole)
    with_list = group.owner_of_slot(key_slot(b"delayq:queues"))
    owner = next(group.owner(queue) for queue in QUEUES if group.owner(queue) is not with_list)
    with DelayQ(group.url) as client:
        for queue in QUEUES:
            client.schedule("n", queue=queue, delay="1h")
    with hanging_node(group, owner):
        began = time.monotonic()
        words = ["--url", group.url, "list", "--queue", ",".join(QUEUES)]
        ended = CliRunner().invoke(cli.app, words)
        took = time.monotonic() - began
    assert ended.exit_code == 5
    assert took < 8


@contextmanager
def all_hanging(group: ClusterGroup) -> Iterator[None]:
    with ExitStack() as stack:
        for server in group.servers:
            stack.enter_context(hanging(server))
        yield


def test_a_call_ends_with_an_error_while_no_node_answers(group: ClusterGroup) -> None:
    """Also if the address names all nodes, and with a client that has worked before.

    test_cluster_executor.py has the same with a clock of its own, and checks the time.
    """
    wait_until(group.is_whole)
    url = "redis+cluster://" + ",".join(f"127.0.0.1:{server.port}" for server in group.servers)
    with DelayQ(url) as known, DelayQ(url) as new:
        known.schedule("n", delay="1h")
        with all_hanging(group):
            for client, error, words in (
                (known, NodeOutcomeUnknown, "The outcome of the call is unknown."),
                (known, BackendUnavailable, "The request was not sent."),
                (new, BackendUnavailable, "The request was not sent."),
                (new, BackendUnavailable, "The request was not sent."),
            ):
                with pytest.raises(error, match=words):
                    client.schedule("n", delay="1h")
            ended = CliRunner().invoke(cli.app, ["--url", url, "stats"])
    assert "No node of the Redis Cluster answered" in str(ended.exception)
    told = [line for line in ended.stderr.splitlines() if line.startswith("delayq: No node")]
    assert len(told) == 1
    assert told[0].endswith("Trying again …")
    wait_until(group.is_whole)


def test_an_asyncio_call_ends_with_an_error_while_no_node_answers(group: ClusterGroup) -> None:
    wait_until(group.is_whole)

    async def story() -> None:
        async with AsyncDelayQ(group.url) as known, AsyncDelayQ(group.url) as new:
            await known.schedule("n", delay="1h")
            with all_hanging(group):
                for client in (known, new):
                    with pytest.raises((NodeOutcomeUnknown, BackendUnavailable)):
                        await client.schedule("n", delay="1h")

    asyncio.run(story())
    wait_until(group.is_whole)


def test_a_worker_starts_while_a_primary_fails(group: ClusterGroup, tmp_path: Path) -> None:
    wait_until(group.is_whole)
    for server in group.servers:
        command(server, "CONFIG", "SET", "cluster-replica-no-failover", "no")
    log = tmp_path / "log"
    old = group.owner("q4")
    old.end()
    try:
        with stamping_worker(group.url, tmp_path, *QUEUES), DelayQ(group.url) as client:
            client.schedule("stamp", {"path": str(log), "text": "first"}, queue="q4")
            wait_until(lambda: lines(log) == ["first"])
    finally:
        old.start()
