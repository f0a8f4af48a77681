"""Lost replies, cut connections, dead and frozen servers: what is sent again, and what the caller gets."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from operator import methodcaller

import pytest
import redis

from delayq.core.errors import BackendUnavailable, DelayqError, OutcomeUnknown
from delayq.redis.connect import Connector, Waits
from tests.support.doors import AsyncDoor, Door, SyncDoor
from tests.support.machine import fair_clock
from tests.support.proxy import Proxy
from tests.support.servers import LocalServer, OwnServer, connect
from tests.support.waiting import wait_until

# Timed: the clients of these tests give up within a second or two.
pytestmark = [pytest.mark.foreign_keys("*"), pytest.mark.timed]

QUICK = Waits(connect_ms=300, answer_ms=300, budget_ms=1_500, reader_margin_ms=300)
COUNTER = "counter"

OpenDoor = Callable[..., Door]


def bump(client: redis.Redis) -> object:
    return client.incr(COUNTER)


def bump_ten(client: redis.Redis) -> object:
    pipe = client.pipeline(transaction=False)
    for n in range(10):
        pipe.incr(f"{COUNTER}:{n}")
    return pipe.execute()


@pytest.fixture
def server(own_server: OwnServer) -> LocalServer:
    return own_server()


@pytest.fixture
def proxy(server: LocalServer) -> Iterator[Proxy]:
    with Proxy(server.socket) as proxy:
        yield proxy


@pytest.fixture(params=[SyncDoor, AsyncDoor], ids=["sync", "asyncio"])
def door(request: pytest.FixtureRequest) -> Iterator[OpenDoor]:
    """Opens doors to a url; once for the sync, once for the asyncio clients."""
    doors: list[Door] = []

    def make(url: str, *, waits: Waits = QUICK, connected: bool = True) -> Door:
        doors.append(request.param(url, waits))
        if connected:
            doors[-1].call(lambda client: client.set(COUNTER, 0), safe=True)
        return doors[-1]

    yield make
    for one in doors:
        one.close()


def count(server: LocalServer) -> int:
    with connect(server.url) as client:
        return int(client.get(COUNTER) or 0)


def test_a_safe_call_is_sent_again_after_a_lost_reply(server: LocalServer, proxy: Proxy, door: OpenDoor) -> None:
    opened = door(proxy.url)
    proxy.cut()

    assert opened.call(bump, safe=True) == 2
    assert count(server) == 2, "the first one was carried out too"


def test_an_unsafe_call_is_never_sent_twice(server: LocalServer, proxy: Proxy, door: OpenDoor) -> None:
    opened = door(proxy.url)
    proxy.cut()

    with pytest.raises(OutcomeUnknown, match=f"Redis at 127.0.0.1:{proxy.port} gave no answer"):
        opened.call(bump, safe=False)
    assert count(server) == 1


def test_a_read_is_sent_again(proxy: Proxy, door: OpenDoor) -> None:
    opened = door(proxy.url)
    proxy.cut()

    assert opened.call(lambda client: client.get(COUNTER), safe=False, reads=True) == b"0"


def test_a_swallowed_reply_costs_one_timeout(server: LocalServer, proxy: Proxy, door: OpenDoor) -> None:
    opened = door(proxy.url)
    proxy.swallow()
    started, fairly_started = time.monotonic(), fair_clock()

    assert opened.call(bump, safe=True) == 2
    assert time.monotonic() - started >= 0.3
    assert fair_clock() - fairly_started < 1.5


def test_what_was_not_sent_is_sent_again_though_unsafe(server: LocalServer, proxy: Proxy, door: OpenDoor) -> None:
    opened = door(proxy.url, connected=False)
    proxy.cut()  # the first reply of the handshake: the command itself was not sent yet

    assert opened.call(bump, safe=False) == 1
    assert proxy.connections == 2


@pytest.mark.parametrize("safe", [True, False])
def test_a_pipeline_cut_half_way(server: LocalServer, proxy: Proxy, door: OpenDoor, safe: bool) -> None:
    opened = door(proxy.url)
    proxy.cut(after=3)

    if safe:
        assert opened.call(bump_ten, safe=True) == [2] * 10
    else:
        with pytest.raises(OutcomeUnknown):
            opened.call(bump_ten, safe=False)


def test_one_lost_reply_leaves_the_outcome_open_whatever_follows(proxy: Proxy, door: OpenDoor) -> None:
    opened = door(proxy.url)
    proxy.refuse()
    proxy.cut()

    with pytest.raises(OutcomeUnknown):
        opened.call(bump, safe=True)


def test_a_read_without_a_server_has_no_unknown_outcome(proxy: Proxy, door: OpenDoor) -> None:
    opened = door(proxy.url)
    proxy.refuse()
    proxy.cut()

    with pytest.raises(BackendUnavailable, match="connection refused"):
        opened.call(bump, safe=True, reads=True)


def test_what_the_caller_was_handling_is_not_our_lost_reply(proxy: Proxy, door: OpenDoor) -> None:
    opened = door(proxy.url)
    proxy.cut()
    with pytest.raises(OutcomeUnknown):
        opened.call(bump, safe=False)
    proxy.cut()
    proxy.refuse()
    proxy.drop_all()
    lost = redis.ConnectionError("the caller's own")

    def as_its_caller() -> None:
        try:
            raise lost
        except redis.ConnectionError:
            opened.call(bump, safe=True)

    with pytest.raises(BackendUnavailable):
        as_its_caller()


def test_a_connection_the_server_closed_is_replaced_before_it_is_used(server: LocalServer, door: OpenDoor) -> None:
    opened = door(server.url)
    with connect(server.url) as other:
        other.client_kill_filter(_type="normal", skipme=True)
    opened.rest()

    assert opened.call(bump, safe=False) == 1, "an unsafe call would end in OutcomeUnknown had it been sent"


def test_a_restart_is_waited_for(server: LocalServer, door: OpenDoor) -> None:
    opened = door(server.url, waits=Waits())
    server.kill()
    opened.rest()

    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(opened.call, bump, safe=False)
        time.sleep(0.3)  # how long the outage lasts
        server.start()
        assert answer.result() == 1


def test_a_replica_that_becomes_primary_is_waited_for(server: LocalServer, door: OpenDoor) -> None:
    opened = door(server.url, waits=Waits())
    with connect(server.url) as other:
        other.replicaof("127.0.0.1", 1)
        promote = threading.Timer(0.5, other.replicaof, ("NO", "ONE"))
        promote.start()
        before = {row["id"] for row in other.client_list() if row["name"].startswith("delayq-commands")}

        assert opened.call(bump, safe=False) == 1
        promote.join()
        after = {row["id"] for row in other.client_list() if row["name"].startswith("delayq-commands")}
    assert not before & after, "the connections to a demoted server are dropped"


def test_a_server_that_stays_a_replica(server: LocalServer, door: OpenDoor) -> None:
    opened = door(server.url)
    with connect(server.url) as other:
        other.replicaof("127.0.0.1", 1)

        with pytest.raises(BackendUnavailable, match="is a read-only replica"):
            opened.call(bump, safe=True)
        other.replicaof("NO", "ONE")


def test_a_server_busy_with_a_script(server: LocalServer, door: OpenDoor) -> None:
    opened = door(server.url)
    with connect(server.url) as other, connect(server.url) as killer:
        killer.config_set("lua-time-limit", 50)
        endless = threading.Thread(target=_run_for_ever, args=(other,))
        endless.start()
        wait_until(lambda: _is_busy(killer), what="the script is too slow")

        with pytest.raises(BackendUnavailable, match="is busy with a long script"):
            opened.call(bump, safe=True)
        killer.script_kill()
        endless.join()


def test_a_frozen_server_gives_every_caller_one_error_within_five_seconds(server: LocalServer) -> None:
    """With the waits that users get: what was sent, what only reads, what never connected, what may not be repeated."""
    sync, asynchronous = partial(SyncDoor, server.url, Waits()), partial(AsyncDoor, server.url, Waits())
    cases = [
        _Case(sync(), OutcomeUnknown, 5.0, safe=True),
        _Case(sync(), OutcomeUnknown, 3.0, safe=False),
        _Case(sync(), BackendUnavailable, 5.0, safe=True, reads=True),
        _Case(sync(), BackendUnavailable, 5.0, safe=True, connected=False),
        _Case(asynchronous(), OutcomeUnknown, 5.0, safe=True),
        _Case(asynchronous(), BackendUnavailable, 5.0, safe=True, connected=False),
    ]
    for case in cases:
        if case.connected:
            case.door.call(bump, safe=True)
    server.stop()
    try:
        with ThreadPoolExecutor(len(cases)) as pool:
            found = list(pool.map(_Case.run, cases))
    finally:
        server.cont()

    for (error, seconds), case in zip(found, cases, strict=True):
        assert type(error) is case.expected
        assert seconds < case.limit_s
        assert isinstance(case.door.call(bump, safe=True), int), "the same client works when the server goes on"
        case.door.close()


@pytest.mark.parametrize("pause_s", [3.0, 4.4])
def test_a_server_that_goes_on_in_time_answers_every_call_that_may_be_repeated(
    server: LocalServer, pause_s: float
) -> None:
    """Whether the pause falls into the call or into the handshake: two tries of 2 s leave time for a third."""
    doors: list[Door] = [SyncDoor(server.url, Waits()), AsyncDoor(server.url, Waits())]
    fresh: list[Door] = [SyncDoor(server.url, Waits()), AsyncDoor(server.url, Waits())]
    for door in doors:
        door.call(bump, safe=True)
    server.stop()
    try:
        with ThreadPoolExecutor(len(doors) + len(fresh)) as pool:
            calls = [pool.submit(_timed, partial(door.call, bump, safe=True)) for door in doors + fresh]
            time.sleep(pause_s)  # how long the pause lasts
            server.cont()
            found = [call.result() for call in calls]
    finally:
        server.cont()
    for door in doors + fresh:
        door.close()

    assert [error for error, _ in found] == [None] * 4
    assert max(seconds for _, seconds in found) < 5.0


@pytest.mark.parametrize("url", ["redis://:s3cret@127.0.0.1:1/0", "unix:///nowhere/redis.sock?password=s3cret"])
def test_nobody_listens(door: OpenDoor, url: str) -> None:
    opened = door(url, waits=Waits(), connected=False)

    started = time.monotonic()
    error, seconds = _timed(lambda: opened.call(bump, safe=False))
    waited = time.monotonic() - started

    assert type(error) is BackendUnavailable
    assert opened.connector.endpoint.where in str(error)
    assert "s3cret" not in str(error) + repr(opened.connector)
    assert seconds < 5.0
    assert waited > 2.0, "a server that is just starting again is waited for"


async def test_a_cancelled_call_leaves_no_reply_to_the_next_caller(server: LocalServer, proxy: Proxy) -> None:
    connector = Connector(proxy.url, connections=2)
    proxy.delay(0.004)
    rand = random.Random(7)
    cancelled = 0
    for n in range(60):
        task = asyncio.create_task(connector.acall(methodcaller("echo", f"lost-{n}"), safe=True))
        done, _ = await asyncio.wait([task], timeout=rand.uniform(0.0, 0.02))
        task.cancel()
        cancelled += not done
        answer = await connector.acall(methodcaller("echo", f"kept-{n}"), safe=True)
        assert answer == f"kept-{n}".encode()
    assert cancelled > 10
    await connector.aclose()


@dataclass(frozen=True)
class _Case:
    door: Door
    expected: type[DelayqError]
    limit_s: float
    safe: bool
    reads: bool = False
    connected: bool = True

    def run(self) -> tuple[Exception | None, float]:
        return _timed(lambda: self.door.call(bump, safe=self.safe, reads=self.reads))


def _timed(call: Callable[[], object]) -> tuple[Exception | None, float]:
    started = fair_clock()
    try:
        call()
    except DelayqError as error:
        return error, fair_clock() - started
    return None, fair_clock() - started


def _run_for_ever(client: redis.Redis) -> None:
    with pytest.raises(redis.ResponseError, match="killed"):
        client.eval("while true do end", 0)


def _is_busy(client: redis.Redis) -> bool:
    try:
        client.ping()
    except redis.ResponseError as error:
        return str(error).startswith("BUSY")
    return False
