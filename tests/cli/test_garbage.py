"""What lies in Redis may come from anybody: commands show it and go on."""

from __future__ import annotations

import json

import pytest
import redis

from delayq import DelayQ
from delayq.drivers.redis_streams import RedisStreams
from tests.cli.conftest import Inline

KEY = "delayq:{default}:"


def envelope(job_id: str, data: bytes, *, name: bytes = b"x", version: int = 1) -> bytes:
    """An envelope as it travels, with bytes in it that no encoder of ours would write."""
    head = b'{"v":%d,"id":"%s","name":"%s","queue":"default"' % (version, job_id.encode(), name)
    return head + b',"attempts":0,"created_ms":0,"data":' + data + b"}"


ROWS = {
    "bytes": b"\xff\xfe\x1b[2J",
    "list": b"[1,2]",
    "empty": b"",
    "deep": envelope("deep", b"[" * 5_000 + b"]" * 5_000),
    "version": envelope("version", b"1", version=9),
    "control": envelope("control", b'"\\u009b"', name=b"a\\u001b[31m"),
    "raw": envelope("raw", '"\x9b\u2028"'.encode()),
}


@pytest.fixture
def garbage(redis_client: redis.Redis, q: DelayQ) -> redis.Redis:
    """Envelopes of strangers, failed; errors and results nobody can read."""
    q.schedule("x", delay="1h")
    for job_id, row in ROWS.items():
        redis_client.hset(f"{KEY}jobs", job_id, row)
        redis_client.zadd(f"{KEY}failed", {job_id: 1_800_000_000_000})
        redis_client.hset(f"{KEY}errors", job_id, b"\xffnot json\x1b[2J")
    return redis_client


@pytest.mark.parametrize("words", [("list",), ("failed", "list"), ("stats",), ("upcoming",)], ids=" ".join)
def test_lists_go_on(inline: Inline, garbage: redis.Redis, words: tuple[str, ...]) -> None:
    for some in (words, (*words, "--json")):
        done = inline.ok(*some)
        assert not any(letter in done.out for letter in "\x1b\x9b\u2028"), some
    if "list" in words:
        shown = {document["id"] for document in inline.ok(*words, "--json").documents}
        assert set(ROWS) <= shown


@pytest.mark.parametrize("job_id", ROWS)
def test_each_can_be_shown_and_forgotten(inline: Inline, garbage: redis.Redis, job_id: str) -> None:
    for words in (("show", job_id), ("failed", "show", job_id), ("show", job_id, "--json")):
        done = inline.ok(*words)
        assert not any(letter in done.out for letter in "\x1b\x9b\u2028"), words
    assert inline.ok("show", job_id, "--json").json["error"]["type"] == "unreadable"
    assert inline("failed", "retry", job_id).code == 0
    assert inline("cancel", job_id).out == "cancelled\n"


def test_a_result_nobody_can_read(inline: Inline, redis_client: redis.Redis, q: DelayQ) -> None:
    q.schedule("x", delay="1h", id="o1")
    redis_client.zrem(f"{KEY}scheduled", "o1")
    redis_client.zadd(f"{KEY}completed", {"o1": 1_900_000_000_000})
    redis_client.hset(f"{KEY}results", "o1", b"\xff{not json")
    assert inline.ok("show", "o1").out
    assert "not json" in str(inline.ok("show", "o1", "--json").json["result"])


def test_workers_that_are_none(inline: Inline, redis_client: redis.Redis) -> None:
    for name, said in {"list": b"[]", "bytes": b"\xff", "words": b'{"queues":7,"started_ms":"soon","jobs":1}'}.items():
        redis_client.zadd("delayq:workers", {name: 9_999_999_999_999})
        redis_client.set(f"delayq:worker:{name}", said, px=60_000)
    redis_client.zadd("delayq:workers", {"gone": 1})
    assert inline.ok("workers").lines[1].split() == ["words"]
    assert json.loads(inline.ok("workers", "--json").out)["queues"] == []


NO_QUEUE = (b"my orders", b"\xff{\x1b[2J", b"orders#0", b"#1")


@pytest.mark.parametrize(
    "words",
    [
        ("list",),
        ("stats",),
        ("upcoming",),
        ("activity",),
        ("job-types",),
        ("failed", "list"),
        ("key", "list"),
        ("lock", "list"),
    ],
    ids=" ".join,
)
def test_what_cannot_name_a_queue_hides_no_queue(
    inline: Inline, q: DelayQ, caplog: pytest.LogCaptureFixture, words: tuple[str, ...]
) -> None:
    """Somebody put it on the list of queues."""
    q.schedule("x", delay="1h", id="o1")
    expected = inline.ok(*words, "--json").out
    q.connector.commands().sadd("delayq:queues", *NO_QUEUE)
    caplog.clear()
    done = inline.ok(*words, "--json")
    assert len(done.documents) == len(expected.splitlines())
    assert caplog.messages == ["left out of the list of queues, as no queue is called so: '#1' and 3 more"]


def test_nor_from_doctor_top_and_those_who_move(inline: Inline, q: DelayQ, caplog: pytest.LogCaptureFixture) -> None:
    q.schedule("x", delay="1h", id="o1")
    q.connector.commands().sadd("delayq:queues", *NO_QUEUE)
    assert "default" in inline.ok("top", "--once").out
    assert len(caplog.messages) == 1, "said once, however often it looks"
    assert {one["code"] for one in inline("doctor", "--json").json["findings"]} >= {"no-mover"}
    assert RedisStreams(q.connector, q.options).queues() == ["default"]


def test_a_failed_job_with_an_id_that_none_can_have_hides_no_other(inline: Inline, garbage: redis.Redis) -> None:
    garbage.zadd(f"{KEY}failed", {b"no id\x1b[2J\xff": 1_800_000_000_000})
    garbage.hset(f"{KEY}jobs", b"no id\x1b[2J\xff", b"1")
    assert len(inline.ok("failed", "list", "--json").documents) == len(ROWS) + 1
    assert "\x1b" not in inline.ok("failed", "list").out
    assert "empty" in inline.ok("top", "--once").out


@pytest.mark.foreign_keys("delayq:queues")
def test_a_foreign_key_in_our_place_is_named(inline: Inline, redis_client: redis.Redis) -> None:
    redis_client.set("delayq:queues", "mine")
    done = inline("stats")
    assert (done.code, done.out) == (1, "")
    assert "holds something else" in done.err
