"""Clients and workers with three sentinels, which make a replica the primary when the primary fails."""

import asyncio
import signal
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from delayq import AsyncDelayQ, BackendUnavailable, DelayQ
from delayq.core.errors import ConfigError, DelayqError, LoginRefused
from delayq.core.exit_codes import ExitCode
from delayq.redis.backend import RedisBackend
from delayq.redis.calls.call import Call
from delayq.redis.connection.blocking import BlockingLeaf
from delayq.redis.connection.leaf import ConnectionLost, drive
from delayq.redis.connection.sentinel import (
    ASK_EVERY,
    SEARCH_TIMEOUT,
    SENTINEL_TIMEOUT,
    SentinelAddress,
    SentinelLeaf,
    Sentinels,
)
from delayq.settings.model import load_settings
from tests.support.topologies import (
    SERVICE,
    SentinelGroup,
    command,
    failover,
    lines,
    sentinel_group,
    stamping_worker,
    walled_off,
)
from tests.support.waiting import wait_until

FORM = r"redis\+sentinel://host1:26379,host2:26379/SERVICE/0"

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def group() -> Iterator[SentinelGroup]:
    """One group for all tests of this file; each test leaves the primary alive."""
    with sentinel_group() as group:
        yield group


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_client_follows_the_primary(group: SentinelGroup, number: signal.Signals) -> None:
    with DelayQ(settings=load_settings(url=group.url, durability="replicas:1")) as careful:
        before = careful.schedule("n", delay="1h")
    with DelayQ(group.url) as client:
        assert client.get(before.id)
        with failing(group, number):
            after = client.schedule("n", delay="1h")
            found = [client.get(ref.id) for ref in (before, after)]
    assert [info.state for info in found if info] == ["scheduled", "scheduled"]


def test_an_async_client_follows_the_primary(group: SentinelGroup) -> None:
    async def story() -> str:
        async with AsyncDelayQ(group.url) as client:
            await client.schedule("n", delay="1h")
            with failing(group, signal.SIGKILL):
                return (await client.schedule("n", delay="1h")).outcome

    assert asyncio.run(story()) == "created"


def failing(group: SentinelGroup, number: signal.Signals) -> AbstractContextManager[None]:
    wait_until(group.is_whole)
    old = group.primary()
    return failover(old, number, lambda: group.primary() is not old)


def test_a_worker_follows_the_primary(group: SentinelGroup, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with stamping_worker(group.url, tmp_path, "q"), DelayQ(group.url) as client:
        for number in (signal.SIGKILL, signal.SIGSTOP):
            client.schedule("stamp", {"path": str(log), "text": number.name}, queue="q")
            wait_until(lambda: lines(log)[-1:] == [number.name])  # noqa: B023
            with failing(group, number):
                client.schedule("stamp", {"path": str(log), "text": "after"}, queue="q")
                wait_until(lambda: lines(log)[-1] == "after")


def test_notifications_come_from_the_new_primary_although_the_old_one_answers(group: SentinelGroup) -> None:
    settings = load_settings(url=group.url)
    backend = RedisBackend(settings)
    hints, keeper = backend.wake_ups(), backend.queue_keeper([], name="dq:a:1:x")
    with DelayQ(group.url) as client:
        client.schedule("n", queue="hinted", delay="1h")
        wait_until(lambda: hints.wait(0.1) or hints.is_subscribed)
        keeper.queues()
        with walled_off(group):
            time.sleep(ASK_EVERY)  # the loops ask the sentinels again
            keeper.promote("hinted")
            hints.wait(0)
            wait_until(lambda: hints.wait(0.1) or hints.is_subscribed)
            client.schedule("n", queue="hinted", delay="30m")
            wait_until(lambda: "hinted" in dict(hints.wait(0.1)))


@pytest.mark.parametrize("is_suspended", [False, True])
def test_cancels_reach_a_supervisor_although_the_old_primary_lives(group: SentinelGroup, is_suspended: bool) -> None:
    keeper = RedisBackend(load_settings(url=group.url)).lease_keeper(["q"])
    keeper.open()

    def hears(id: str) -> bool:
        keeper.renew("consumer", [])
        command(group.primary(), "PUBLISH", "delayq:cancel", f"q {id}")
        time.sleep(0.1)
        return ("q", id) in keeper.stop_requests()

    wait_until(lambda: hears("before"))
    with failing(group, signal.SIGSTOP) if is_suspended else walled_off(group):
        wait_until(lambda: hears("after"))


def test_a_dead_sentinel_is_skipped_and_without_any_the_servers_are_named(group: SentinelGroup) -> None:
    first = group.sentinels[0]
    first.end()
    try:
        with DelayQ(group.url) as client:
            assert client.schedule("n", delay="1h").outcome == "created"
    finally:
        first.start()
    dead = f"redis+sentinel://127.0.0.1:1,127.0.0.1:2/{SERVICE}"
    with DelayQ(dead) as client, pytest.raises(BackendUnavailable) as raised:
        client.schedule("n")
    assert "none of its sentinels answered (redis://127.0.0.1:1, redis://127.0.0.1:2)" in str(raised.value)
    assert "The request was not sent." in str(raised.value)


def test_clients_leave_a_living_primary_that_the_sentinels_replaced(group: SentinelGroup) -> None:
    with DelayQ(group.url) as client:
        client.schedule("n", id="before", delay="1h")
        with walled_off(group) as old:

            def new_job_is_on_the_old_primary() -> bool:
                job = client.schedule("n", delay="1h")
                return bool(command(old, "HEXISTS", "delayq:{default}:jobs", job.id))

            left_at = time.monotonic() + ASK_EVERY
            wait_until(lambda: not new_job_is_on_the_old_primary() and time.monotonic() > left_at)
            assert not new_job_is_on_the_old_primary()
            assert command(old, "ROLE")[0] == "master"


def test_an_unknown_service_is_refused(group: SentinelGroup) -> None:
    with DelayQ(group.url.replace(SERVICE, "other")) as client, pytest.raises(LoginRefused) as raised:
        client.stats()
    assert "does not know the service 'other'." in str(raised.value)


@pytest.mark.parametrize(
    ("scheme", "path", "sentence"),
    [
        (
            "redis",
            "",
            "is a sentinel. The request was not sent. "
            "Write redis+sentinel://host1:26379,host2:26379/SERVICE/0 instead.",
        ),
        ("redis", "/2", "refused the login: unknown command 'SELECT'. If this is the address of a sentinel, write"),
        (
            "redis+cluster",
            "",
            "refused CLUSTER: unknown command 'CLUSTER'. If this is the address of a sentinel, write",
        ),
    ],
)
def test_another_kind_of_address_of_a_sentinel_is_refused_with_the_right_form(
    group: SentinelGroup, scheme: str, path: str, sentence: str
) -> None:
    with DelayQ(f"{scheme}://127.0.0.1:{group.sentinels[0].port}{path}") as client:
        with pytest.raises(DelayqError) as raised:
            client.stats()
        assert sentence in str(raised.value)
        assert raised.value.exit_code == ExitCode.WRONG_USE


def test_the_address_of_a_sentinel_must_not_name_another_server(group: SentinelGroup) -> None:
    port = group.primary().port
    with DelayQ(f"redis+sentinel://127.0.0.1:{port}/main") as client, pytest.raises(LoginRefused) as raised:
        client.stats()
    assert str(raised.value) == (
        f"The server at redis://127.0.0.1:{port} is not a sentinel. For a single server, write redis://host:6379/0. "
        "For a Redis Cluster, write redis+cluster://host1:6379,host2:6379."
    )


def test_passwords_of_sentinels_and_servers() -> None:
    with sentinel_group(password="se/cret") as group:
        right = group.url.replace("://", "://:se%2Fcret@") + "?sentinel_password=se%2Fcret"
        with DelayQ(right) as client:
            assert client.schedule("n", delay="1h").outcome == "created"
        for wrong in (right.replace(":se%2F", ":other"), right.replace("=se%2F", "=other"), group.url):
            with DelayQ(wrong) as client, pytest.raises(LoginRefused, match="refused the login") as raised:
                client.stats()
            assert "cret" not in str(raised.value)
            assert ("sentinel_password" in str(raised.value)) == ("=se%2Fcret" not in wrong)


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("redis+sentinel://h1,h2", "does not name the service"),
        ("redis+sentinel://h1/main/x", f"url 'redis\\+sentinel://h1/main/x' is not the address .* Write {FORM}"),
        ("redis+sentinel://:pw@h1/main/0/1", r"url 'redis\+sentinel://:\*\*\*@h1/main/0/1' is not the address"),
        ("redis+sentinel://h1/main/-1", "is not the address"),
        ("redis+sentinel://h1/main?db=x", "is not the address"),
        ("redis+sentinel:///main/0", f"url 'redis\\+sentinel:///main/0' is not the address .* Write {FORM}"),
        ("redis+sentinel://h1,,h2/main", "is not the address"),
        ("redis+sentinel://a b/main", "is not the address"),
        ("redis+sentinel://h1/main?sentinel_user=a", r"Did you mean sentinel_username\?"),
        ("redis+sentinel://h1/main?colour=a", "sentinel_username, sentinel_password"),
        ("redis+sentinel://h1:port/main", "is not the address"),
        ("redis+sentinel://h1/main?sentinel_passwort=x", "has an option that delayq does not support"),
    ],
)
def test_addresses_that_cannot_be_used(url: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        SentinelAddress(url)


def test_the_database_may_be_an_option() -> None:
    address = SentinelAddress("redis+sentinel://h1/main?db=3&protocol=2")
    assert [one.masked for one in address.sentinels] == ["redis://h1:26379?protocol=2"]
    assert address.primary("10.0.0.1", 6379).masked == "redis://10.0.0.1:6379/3?protocol=2"


def test_the_parts_of_an_address() -> None:
    url = "rediss+sentinel://user:pw@h1,[::1]:7/main/3?sentinel_username=su&sentinel_password=sp&ssl_cert_reqs=none"
    address = SentinelAddress(url)
    assert [one.masked for one in address.sentinels] == [
        "rediss://su:***@h1:26379?ssl_cert_reqs=***",
        "rediss://su:***@[::1]:7?ssl_cert_reqs=***",
    ]
    assert address.primary("10.0.0.1", 6379).masked == "rediss://user:***@10.0.0.1:6379/3?ssl_cert_reqs=***"
    assert address.masked.startswith("rediss+sentinel://user:***@h1,[::1]:7/main/3?")
    assert "pw" not in address.masked and "sp" not in address.masked.replace("ssl", "")


class Named:
    """The executor of a sentinel that names one server as the primary since an epoch, or does not answer."""

    def __init__(self, port: int, epoch: int, flags: str = "master") -> None:
        self.where = f"sentinel of {port}"
        self.asked = 0
        self._port = port
        about = {"ip": "127.0.0.1", "port": port, "flags": flags, "config-epoch": epoch}
        self._reply = [str(word).encode() for pair in about.items() for word in pair]

    async def run(self, call: Call[Any]) -> Any:
        self.asked += 1
        if not self._port:
            raise BackendUnavailable("away")
        return call.parse(self._reply)


def test_a_sentinel_that_leads_a_failover_names_the_old_primary() -> None:
    """Until the end of the failover, it has the new epoch already, but the old address."""
    address = SentinelAddress("redis+sentinel://h1,h2,h3/main")
    sentinels = Sentinels(address, lambda server, timeout: BlockingLeaf(server))
    leader = Named(9, 4, "s_down,o_down,master,failover_in_progress")
    sentinels._executors = [Named(2, 4), leader, Named(2, 4)]  # type: ignore[list-item]
    assert drive(sentinels.primary()).masked == "redis://127.0.0.1:2"


def test_the_newest_answer_of_all_sentinels_counts() -> None:
    now = [0.0]
    address = SentinelAddress("redis+sentinel://h1,h2,h3/main")
    sentinels = Sentinels(address, lambda server, timeout: BlockingLeaf(server), clock=lambda: now[0])
    dead = Named(0, 0)
    sentinels._executors = [dead, Named(1, 3), Named(2, 4)]  # type: ignore[list-item]
    for now[0] in (100.0, 105.0, 111.0):
        assert drive(sentinels.primary()).masked == "redis://127.0.0.1:2"
    assert dead.asked == 2


def test_many_silent_sentinels_do_not_delay_a_call_for_long() -> None:
    now = [100.0]

    class Slow(Named):
        async def run(self, call: Call[Any]) -> Any:
            now[0] += SENTINEL_TIMEOUT
            return await super().run(call)

    address = SentinelAddress("redis+sentinel://h1/main")
    sentinels = Sentinels(address, lambda server, timeout: BlockingLeaf(server), clock=lambda: now[0])
    executors = [*(Slow(0, n) for n in range(9)), Named(2, 4)]
    for n, executor in enumerate(executors):
        executor.where = f"redis://h{n}"
    sentinels._executors = executors  # type: ignore[assignment]
    for asked in (range(4), range(8)):
        began = now[0]
        with pytest.raises(ConnectionLost) as raised:
            drive(sentinels.primary())
        assert now[0] - began == SEARCH_TIMEOUT
        silent = ", ".join(f"redis://h{n}" for n in asked)
        assert str(raised.value) == f"none of its sentinels answered ({silent}): away"
    assert drive(sentinels.primary()).masked == "redis://127.0.0.1:2"


def test_a_slow_lookup_of_one_sentinel_leaves_the_others_their_time() -> None:
    now = [100.0]

    class Unresolved(Named):
        async def run(self, call: Call[Any]) -> Any:
            now[0] += 10.0
            return await super().run(call)

    address = SentinelAddress("redis+sentinel://h1/main")
    sentinels = Sentinels(address, lambda server, timeout: BlockingLeaf(server), clock=lambda: now[0])
    sentinels._executors = [Unresolved(0, 0), Named(1, 3), Named(2, 4)]  # type: ignore[list-item]
    assert drive(sentinels.primary()).masked == "redis://127.0.0.1:2"


def test_a_leaf_stays_with_its_primary_while_no_sentinel_answers() -> None:
    """It asks them seldom then, because each silent sentinel delays a call."""
    now, asked = [0.0], [0]
    leaf = SentinelLeaf(
        SentinelAddress("redis+sentinel://h1/main"),
        lambda server, timeout: BlockingLeaf(server),
        try_timeout=1.0,
        clock=lambda: now[0],
    )

    class Silent:
        async def primary(self) -> None:
            asked[0] += 1
            raise ConnectionLost("none answered", sent=False)

    leaf._sentinels = Silent()  # type: ignore[assignment]
    primary = BlockingLeaf(leaf._address.primary("127.0.0.1", 1))
    leaf._primary = primary
    for now[0] in (2.0, 3.0, 4.0, 13.0):
        with pytest.raises(ConnectionLost):
            drive(leaf.send(b""))
        leaf._primary = primary
    assert asked[0] == 2
