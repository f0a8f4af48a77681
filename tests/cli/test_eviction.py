"""A Redis that may throw jobs away is not served, unless somebody says so."""

from __future__ import annotations

import signal

import pytest
import redis

from delayq import DelayQ
from tests.support.cli import Cli, end
from tests.support.servers import LocalServer, OwnServer, connect
from tests.support.waiting import wait_until

WORK = ("work", "--app", "shop", "--stop-when-empty")
MOVE = ("move", "--once")


@pytest.fixture
def server(cli: Cli, own_server: OwnServer) -> LocalServer:
    server = own_server()
    cli.env["DELAYQ_URL"] = server.url
    return server


def set_policy(server: LocalServer, policy: str, *, limit: str = "0") -> None:
    with connect(server.url) as client:
        client.config_set("maxmemory-policy", policy)
        client.config_set("maxmemory", limit)


@pytest.mark.parametrize("words", [WORK, MOVE], ids=lambda words: words[0])
@pytest.mark.parametrize("limit", ["0", "100mb"])
@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
def test_a_policy_that_evicts_is_refused(
    cli: Cli, server: LocalServer, words: tuple[str, ...], policy: str, limit: str
) -> None:
    set_policy(server, policy, limit=limit)
    with DelayQ(server.url) as q:
        q.schedule("order.close", {"order_id": 1}, id="o1", queue="orders")
        done = cli(*words)
        assert (done.code, done.out) == (6, "")
        assert f"maxmemory-policy {policy}" in done.err
        assert "CONFIG SET maxmemory-policy noeviction" in done.err
        assert "--allow-eviction" in done.err
        assert "Traceback" not in done.err
        assert [stats.ready for stats in q.stats("orders")] == [1], "nothing was run"
        cli.ok(*words, "--allow-eviction")


@pytest.mark.parametrize("words", [WORK, MOVE], ids=lambda words: words[0])
def test_noeviction_is_served_with_a_limit_too(cli: Cli, server: LocalServer, words: tuple[str, ...]) -> None:
    set_policy(server, "noeviction", limit="100mb")
    cli.ok(*words)


def test_a_user_who_may_not_ask_is_served(cli: Cli, server: LocalServer, redis_client: redis.Redis) -> None:
    set_policy(server, "allkeys-lru")
    with connect(server.url) as client:
        client.execute_command("ACL", "SETUSER", "shy", "on", ">pw", "~*", "&*", "+@all", "-info", "-config")
    cli.env["DELAYQ_URL"] = server.url.replace("unix://", "unix://shy:pw@")
    done = cli.ok(*MOVE)
    assert "INFO" not in done.err


def test_up_is_no_exception(local: Cli) -> None:
    first = local.start("up")
    assert first.stdout is not None
    with connect(first.stdout.readline().strip()) as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
        done = local("up")
        assert done.code == 6
        assert "maxmemory-policy allkeys-lru" in done.err
        second = local.start("up", "--allow-eviction")
        assert second.stdout is not None
        assert second.stdout.readline().startswith("unix://")
        said = second.stderr
        assert said is not None
        wait_until(lambda: "Stop with" in said.readline(), what="it serves")
        second.send_signal(signal.SIGINT)
        assert end(second).code == 0
    first.send_signal(signal.SIGINT)
    assert end(first).code == 0


def test_a_redis_that_is_away_is_waited_for(cli: Cli, server: LocalServer) -> None:
    server.shutdown()
    worker = cli.start(*WORK)
    said = worker.stderr
    assert said is not None
    wait_until(lambda: "waiting to start" in said.readline(), timeout=30, what="it says that it waits")
    server.start()
    assert end(worker).code == 0
