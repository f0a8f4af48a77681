"""Replies have one shape for every server, protocol and version of redis-py, sync and asyncio, also in a pipeline."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from delayq.redis.connect import Waits
from tests.support.doors import AsyncDoor, Door, SyncDoor
from tests.support.servers import connect

pytestmark = pytest.mark.foreign_keys("*")

DUE = 1_795_249_051_450
FIELDS = {b"id": b"o1", b"job": b"{}"}


@pytest.fixture(params=["", "2", "3"], ids=["unsaid", "RESP2", "RESP3"])
def url(request: pytest.FixtureRequest, each_redis_url: str) -> str:
    return f"{each_redis_url}&protocol={request.param}" if request.param else each_redis_url


@pytest.fixture(params=[SyncDoor, AsyncDoor], ids=["sync", "asyncio"])
def door(request: pytest.FixtureRequest, url: str) -> Iterator[Door]:
    opened: Door = request.param(url, Waits())
    yield opened
    opened.close()


@pytest.fixture
def admin(each_redis_url: str) -> Iterator[redis.Redis]:
    with connect(each_redis_url) as client:
        client.zadd("due", {"a": DUE, "b": DUE + 1.5})
        client.hset("jobs", mapping={"a": "1", "b": "2"})
        client.xgroup_create("stream", "delayq", "0", mkstream=True)
        for entry in ("1-1", "1-2"):
            client.xadd("stream", FIELDS, id=entry)
        yield client


def read(client: Any, since: str = ">") -> Any:
    return client.xreadgroup("delayq", "me", {"stream": since}, count=9)


def test_entries_that_are_read(door: Door, admin: redis.Redis) -> None:
    assert door.call(read, safe=False) == [[b"stream", [(b"1-1", FIELDS), (b"1-2", FIELDS)]]]
    assert door.call(read, safe=False) == []


def test_own_pending_entries_one_of_which_is_gone(door: Door, admin: redis.Redis) -> None:
    door.call(read, safe=False)
    admin.xdel("stream", "1-1")

    assert door.call(lambda client: read(client, "0"), safe=True) == [[b"stream", [(b"1-1", {}), (b"1-2", FIELDS)]]]
    admin.xack("stream", "delayq", "1-1", "1-2")
    assert door.call(lambda client: read(client, "0"), safe=True) == [[b"stream", []]]


def test_two_streams_and_a_wait_for_nothing(door: Door, admin: redis.Redis) -> None:
    admin.xgroup_create("other", "delayq", "0", mkstream=True)
    streams = {"stream": ">", "other": ">"}

    def block(client: Any) -> Any:
        return client.xreadgroup("delayq", "me", streams, count=1, block=20)

    assert door.call(block, safe=False) == [[b"stream", [(b"1-1", FIELDS)]]]
    door.call(block, safe=False)
    assert door.call(block, safe=False) == []


def test_a_raw_command_and_a_plain_xread(door: Door, admin: redis.Redis) -> None:
    words = ("XREADGROUP", "GROUP", "delayq", "me", "COUNT", 1, "STREAMS", "stream", ">")

    assert door.call(lambda client: client.execute_command(*words), safe=False) == [[b"stream", [(b"1-1", FIELDS)]]]
    assert door.call(lambda client: client.xread({"stream": "1-1"}), safe=True) == [[b"stream", [(b"1-2", FIELDS)]]]


SCORED = [(b"a", float(DUE)), (b"b", DUE + 1.5)]


@pytest.mark.parametrize(
    ("send", "expected"),
    [
        (lambda client: client.zrange("due", 0, -1), [b"a", b"b"]),
        (lambda client: client.zrange("due", 0, -1, withscores=True), SCORED),
        (lambda client: client.zrange("due", 0, 0, withscores=True, score_cast_func=int), [(b"a", DUE)]),
        (lambda client: client.zrange("due", 1, 1, withscores=True, score_cast_func=int), [(b"b", DUE + 1)]),
        (lambda client: client.zrange("none", 0, -1, withscores=True), []),
        (lambda client: client.zrangebyscore("due", 0, DUE, withscores=True), SCORED[:1]),
        (lambda client: client.zrangebyscore("due", 0, "+inf", start=1, num=1, withscores=True), SCORED[1:]),
        (lambda client: client.zrevrange("due", 0, -1, withscores=True), SCORED[::-1]),
        (lambda client: client.zrevrangebyscore("due", "+inf", 0, withscores=True), SCORED[::-1]),
        (lambda client: client.zscore("due", "b"), DUE + 1.5),
        (lambda client: client.zscore("due", "none"), None),
        (lambda client: client.zscan("due"), (0, SCORED)),
        (lambda client: client.hgetall("jobs"), {b"a": b"1", b"b": b"2"}),
        (lambda client: client.hgetall("none"), {}),
        (lambda client: client.hmget("jobs", ["a", "none"]), [b"1", None]),
        (lambda client: client.hscan("jobs"), (0, {b"a": b"1", b"b": b"2"})),
        (lambda client: client.xrange("stream", count=1), [(b"1-1", FIELDS)]),
        (lambda client: client.xpending("stream", "delayq"), {"pending": 0, "min": None, "max": None, "consumers": []}),
        (lambda client: client.xinfo_consumers("stream", "delayq"), []),
        (lambda client: client.eval("return {1, 'a', false, redis.call('ZSCORE', KEYS[1], 'a')}", 1, "due"),
         [1, b"a", None, b"%d" % DUE]),
        (lambda client: client.eval("return redis.call('HGETALL', KEYS[1])", 1, "none"), []),
        (lambda client: client.eval("return redis.status_reply('OK')", 0), b"OK"),
        (lambda client: client.script_exists("0" * 40), [False]),
    ],
    ids=range(23),
)  # fmt: skip
def test_a_reply(door: Door, admin: redis.Redis, send: Callable[[Any], Any], expected: Any) -> None:
    assert door.call(send, safe=True) == expected


def test_pending_entries_and_claims(door: Door, admin: redis.Redis) -> None:
    door.call(read, safe=False)

    pending = door.call(lambda client: client.xpending_range("stream", "delayq", "-", "+", 9), safe=True)
    assert [(row["message_id"], row["consumer"], row["times_delivered"]) for row in pending] == [
        (b"1-1", b"me", 1),
        (b"1-2", b"me", 1),
    ]
    claimed = door.call(lambda client: client.xclaim("stream", "delayq", "you", 0, ["1-1"], justid=True), safe=True)
    assert claimed == [b"1-1"]
    groups = door.call(lambda client: client.xinfo_groups("stream"), safe=True)
    assert [(row["name"], row["pending"], row["last-delivered-id"]) for row in groups] == [(b"delayq", 2, b"1-2")]


def test_a_pipeline_of_them(door: Door, admin: redis.Redis) -> None:
    def send(client: Any) -> Any:
        pipe = client.pipeline(transaction=False)
        pipe.eval("return 1", 0)
        read(pipe)
        pipe.zrange("due", 0, -1, withscores=True)
        return pipe.execute()

    assert door.call(send, safe=False) == [1, [[b"stream", [(b"1-1", FIELDS), (b"1-2", FIELDS)]]], SCORED]


def test_info_and_time(door: Door, admin: redis.Redis) -> None:
    info = door.call(lambda client: client.info("server"), safe=True)
    seconds, microseconds = door.call(lambda client: client.time(), safe=True)

    assert isinstance(info["redis_version"], str)
    assert seconds * 1000 > DUE - 10 * 365 * 86_400_000
    assert 0 <= microseconds < 1_000_000
