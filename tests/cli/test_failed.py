"""`delayq failed …`, and what pause, clear and queue set do."""

from __future__ import annotations

import asyncio
import re
import time

import pytest

from delayq import AsyncDelayQ, DelayQ, PayloadLost, job
from delayq.core.backoff import DEFAULT
from delayq.core.failure import Failure, encode
from delayq.core.outcome import Policy
from delayq.core.states import State
from delayq.core.when import format_instant
from delayq.drivers.redis_streams import RedisStreamsFactory
from delayq.jobs.registry import Registry, using
from delayq.redis.keys import Keys
from delayq.worker.options import WorkerOptions
from delayq.worker.plan import Plan
from tests.cli.conftest import Inline
from tests.support.running import run
from tests.support.servers import connect


def bad(text: str) -> None:
    raise ValueError(text)


@pytest.fixture
def three(q: DelayQ, redis_url: str) -> tuple[str, ...]:
    """Three jobs of the default queue have failed, in this order."""
    ids = ("b0", "b1", "b2")
    q.schedule_many([{"name": "bad", "id": job_id, "data": {"text": f"no {job_id}"}} for job_id in ids])
    factory = RedisStreamsFactory(redis_url, q.options)
    fallback = Policy(tries=1, backoff=DEFAULT)
    options = WorkerOptions(queues=("default",), fallback=fallback, stop_when_empty=True, mover=False)
    with using(Registry()) as registry:
        job("bad")(bad)
    run(Plan(factory, registry, options))
    assert [info.id for info in q.iter_jobs("failed")] == list(ids)
    return ids


def state(q: DelayQ, job_id: str) -> str:
    info = q.get(job_id)
    return info.state if info else State.ABSENT


@pytest.fixture
def lost(q: DelayQ, redis_url: str, inline: Inline) -> str:
    """A job whose payload somebody deleted while it waited; the mover has found out."""
    q.schedule("bad", id="lost-1", delay="1h")
    with connect(redis_url) as plain:
        plain.hdel("delayq:{default}:jobs", "lost-1")
        plain.zadd("delayq:{default}:scheduled", {"lost-1": 1})
    assert inline("move", "--once").code == 0
    assert state(q, "lost-1") == State.FAILED
    return "lost-1"


def test_a_lost_payload_cannot_be_retried_and_says_what_to_do(
    inline: Inline, q: DelayQ, redis_url: str, lost: str
) -> None:
    for words in (["failed", "retry", lost], ["failed", "retry", "--all"]):
        done = inline(*words)
        assert done.code == 4
        assert "The payload of the job 'lost-1' in queue 'default' is lost" in done.err
        assert "delayq failed forget" in done.err
        assert state(q, lost) == State.FAILED
    with pytest.raises(PayloadLost):
        q.retry(lost)

    async def aretry() -> None:
        async with AsyncDelayQ(redis_url) as other:
            await other.retry(lost)

    with pytest.raises(PayloadLost):
        asyncio.run(aretry())
    [other] = [answer for answer in q.retry_failed() if answer.id == lost]
    assert isinstance(other.error, PayloadLost)


def test_a_lost_payload_was_made_at_a_time_that_is_not_known(inline: Inline, lost: str) -> None:
    shown = inline("show", lost)
    assert "1970" not in shown.out
    assert "PayloadLost" in shown.out
    why = inline("why", lost)
    assert "It cannot be retried: forget it, and schedule the job anew." in why.out
    assert inline("show", lost, "--json").json["created_ms"] is None


def test_list_and_show(inline: Inline, three: tuple[str, ...]) -> None:
    documents = inline("failed", "list", "--json").documents
    assert [one["id"] for one in documents] == list(three)
    assert [one["error"]["message"] for one in documents] == ["no b0", "no b1", "no b2"]
    assert inline("failed", "list", "--limit", "2").lines[1].split()[:3] == ["b0", "bad", "default"]
    assert "--limit" in inline("failed", "list", "--limit", "2").err
    assert inline("failed", "list", "--name", "good.*", "--json").out == ""
    shown = inline("failed", "show", "b1").out
    assert "ValueError: no b1" in shown
    assert "raise ValueError(text)" in shown


def test_show_is_for_failed_jobs(inline: Inline, q: DelayQ) -> None:
    q.schedule("x", delay="1h", id="o1")
    done = inline("failed", "show", "o1")
    assert (done.code, done.out) == (4, "")
    assert "scheduled" in done.err


def test_retry(inline: Inline, q: DelayQ, three: tuple[str, ...]) -> None:
    done = inline("failed", "retry", "b1", "--json")
    assert done.json["name"] == "bad"
    assert (done.code, [one["id"] for one in done.documents]) == (0, ["b1"])
    assert [state(q, job_id) for job_id in three] == ["failed", "scheduled", "failed"]
    info = q.get("b1")
    assert info is not None
    assert info.envelope is not None
    assert info.envelope.attempts == 0


def test_one_that_cannot_be_retried_keeps_no_other_from_it(inline: Inline, q: DelayQ, three: tuple[str, ...]) -> None:
    done = inline("failed", "retry", "none", "b0", "b0", "b2")
    assert (done.code, done.lines) == (3, ["b0", "b2"])
    assert "'none'" in done.err
    assert [state(q, job_id) for job_id in three] == ["scheduled", "failed", "scheduled"]


def test_retry_all_of_a_name(inline: Inline, q: DelayQ, three: tuple[str, ...]) -> None:
    assert inline("failed", "retry", "--all", "--name", "good").out == ""
    assert inline("failed", "retry", "--all", "--name", "b*").lines == list(three)
    assert inline("failed", "retry", "--all").out == ""
    assert [state(q, job_id) for job_id in three] == ["scheduled"] * 3


def test_a_name_or_a_range_of_times_is_a_choice_by_itself(inline: Inline, q: DelayQ, three: tuple[str, ...]) -> None:
    first, _, last = [info.failed_ms for info in q.iter_jobs("failed")]
    assert first is not None
    assert last is not None
    assert inline("failed", "retry", "--name", "good").out == ""
    assert inline("failed", "retry", "--until", format_instant(first - 1)).out == ""
    assert inline("failed", "retry", "--since", format_instant(last + 1)).out == ""
    assert inline("failed", "list", "--since", format_instant(last), "--json").documents[-1]["id"] == "b2"
    assert inline("failed", "list", "--until", "1h").out.count("\n") == 1
    assert inline("failed", "forget", "--until", format_instant(first - 1), "--yes").out == ""
    done = inline("failed", "retry", "--since", "1h", "--until", format_instant(last), "--name", "b*", "--json")
    assert [one["id"] for one in done.documents] == list(three)
    assert [state(q, job_id) for job_id in three] == ["scheduled"] * 3


def test_retry_at_a_rate(inline: Inline, q: DelayQ, three: tuple[str, ...]) -> None:
    began = time.monotonic()
    assert inline("failed", "retry", "--all", "--rate", "10/s").lines == list(three)
    assert time.monotonic() - began >= 0.2


def test_the_first_error_is_shown_beside_the_last(inline: Inline, q: DelayQ, three: tuple[str, ...]) -> None:
    failure = q.get("b1").failure  # type: ignore[union-attr]  # the fixture made it
    assert failure is not None
    last = Failure(type="WorkerVanished", message="too often", history=[failure])
    key = Keys(q.options.prefix, "default").of("errors")
    q.connector.commands().hset(key, "b1", encode(last))
    assert "WorkerVanished: too often; first ValueError: no b1" in inline("failed", "list").out
    assert inline("failed", "show", "b1", "--json").json["error"]["history"][0]["message"] == "no b1"


def test_forget_asks_what_it_names(inline: Inline, three: tuple[str, ...]) -> None:
    done = inline("failed", "forget", "--name", "b*", "--since", "2h")
    assert (done.code, done.out) == (2, "")
    assert "Drop every failed job named b* since 2h: 3 in default?" in done.err


def test_all_means_one_queue(inline: Inline, q: DelayQ, three: tuple[str, ...]) -> None:
    assert inline("failed", "retry", "--all", "--queue", "orders").out == ""
    assert state(q, "b0") == "failed"


def test_forget(inline: Inline, q: DelayQ, three: tuple[str, ...]) -> None:
    q.schedule("x", delay="1h", id="o1")
    done = inline("failed", "forget", "b0", "none", "o1")
    assert (done.code, done.lines) == (4, ["b0 forgotten", "none unknown", "o1 refused"])
    assert inline("failed", "forget", "none").code == 3
    assert inline("failed", "forget", "--all", "--yes", "--json").documents == [
        {"id": job_id, "queue": "default", "outcome": "forgotten"} for job_id in three[1:]
    ]
    assert state(q, "o1") == "scheduled"


def test_prune_and_flush(inline: Inline, q: DelayQ, three: tuple[str, ...]) -> None:
    assert inline("failed", "prune", "--older", "1h").out == "0\n"
    assert inline("failed", "flush", "--yes", "--json").json == {"queue": "default", "dropped": 3}
    assert [state(q, job_id) for job_id in three] == ["absent"] * 3


def test_clear_drops_what_waits_and_nothing_else(inline: Inline, q: DelayQ, three: tuple[str, ...]) -> None:
    q.schedule_many([{"name": "x", "delay": "1h"}] * 3 + [{"name": "x"}] * 2)
    q.schedule("x", delay="1h", id="o1", queue="orders")
    assert inline("clear", "--yes", "--json").json == {"queue": "default", "dropped": 5}
    assert state(q, "b0") == "failed"
    assert q.get("o1", queue="orders") is not None


def test_pause_and_resume(inline: Inline, q: DelayQ) -> None:
    assert inline("pause", "orders", "--json").json == {"queue": "orders", "paused": True, "paused_until_ms": 0}
    assert [stats.paused for stats in q.stats("orders")] == [True]
    done = inline("pause", "orders", "--for", "10m")
    assert done.out == "paused\n"
    assert re.search(r"until \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", done.err)
    assert "for 10m" in inline("stats").out or "for 9m 59s" in inline("stats").out
    assert inline("resume", "orders").out == "resumed\n"
    assert [stats.paused for stats in q.stats("orders")] == [False]


def test_queue_remove(inline: Inline, q: DelayQ) -> None:
    q.schedule("order.close", queue="orders", delay="1h")
    refused = inline("queue", "remove", "orders")
    assert (refused.code, refused.out) == (4, "")
    assert "holds jobs: 1 scheduled" in refused.err
    assert "delayq clear --queue orders" in refused.err
    inline.ok("clear", "--queue", "orders", "--yes")
    assert inline.ok("queue", "remove", "orders", "--json").json == {"queue": "orders", "removed": True}
    assert inline.ok("stats", "--json").json == {"queues": []}
    gone = inline("queue", "remove", "orders")
    assert (gone.code, "No queue 'orders' is known" in gone.err) == (3, True)
    assert [line["what"] for line in inline.ok("audit", "--json").documents][:1] == ["queue remove"]


def test_queue_set(inline: Inline, q: DelayQ) -> None:
    set_ = inline("queue", "set", "orders", "--lease", "5s", "--json")
    assert set_.json == {"queue": "orders", "lease_ms": 5_000, "durability": "memory"}
    assert [stats.lease_ms for stats in q.stats("orders")] == [5_000]
    inline.ok("queue", "set", "orders", "--durability", "replicas:2")
    shown = inline("queue", "set", "orders").out
    assert [line.split() for line in shown.splitlines()] == [
        ["queue", "orders"],
        ["lease", "5s"],
        ["durability", "replicas:2"],
    ]


@pytest.fixture
def spread(q: DelayQ, redis_url: str) -> dict[str, str]:
    """One failed job in each of three queues; none in the default queue."""
    where = {"f0": "mail", "f1": "orders", "f2": "vip"}
    q.schedule_many(
        [{"name": "bad", "id": job_id, "queue": queue, "data": {"text": job_id}} for job_id, queue in where.items()]
    )
    factory = RedisStreamsFactory(redis_url, q.options)
    fallback = Policy(tries=1, backoff=DEFAULT)
    options = WorkerOptions(queues=tuple(where.values()), fallback=fallback, stop_when_empty=True, mover=False)
    with using(Registry()) as registry:
        job("bad")(bad)
    run(Plan(factory, registry, options))
    return where


def states(q: DelayQ, where: dict[str, str]) -> list[str]:
    found = [q.get(job_id, queue=queue) for job_id, queue in where.items()]
    return [info.state if info else State.ABSENT for info in found]


def test_all_verbs_mean_the_queues_that_list_shows(inline: Inline, q: DelayQ, spread: dict[str, str]) -> None:
    listed = inline.ok("failed", "list", "--json").documents
    done = inline.ok("failed", "retry", "--all", "--json")
    assert [(one["id"], one["queue"]) for one in done.documents] == [(one["id"], one["queue"]) for one in listed]
    assert "3 jobs to be tried again: 1 in mail, 1 in orders, 1 in vip." in done.err
    assert states(q, spread) == ["scheduled"] * 3
    record = [(line["what"], line["on"]) for line in inline.ok("audit", "--json").documents]
    assert sorted(record) == [("retry", "mail"), ("retry", "orders"), ("retry", "vip")]


def test_several_queues_are_named_with_commas_or_again(inline: Inline, q: DelayQ, spread: dict[str, str]) -> None:
    assert [one["id"] for one in inline.ok("failed", "list", "--queue", "mail,vip", "--json").documents] == ["f0", "f2"]
    assert inline.ok("failed", "retry", "--all", "--queue", "mail", "--queue", "orders,mail").lines == ["f0", "f1"]
    assert states(q, spread) == ["scheduled", "scheduled", "failed"]
    refused = inline("failed", "retry", "--all", "--queue", "mail,*")
    assert (refused.code, refused.out) == (2, "")


def test_no_match_is_said_and_is_no_error(inline: Inline, q: DelayQ, spread: dict[str, str]) -> None:
    for words in (
        ("failed", "list", "--name", "good"),
        ("failed", "retry", "--all", "--name", "good"),
        ("failed", "retry", "--all", "--queue", "default"),
        ("failed", "forget", "--name", "good", "--yes"),
        ("failed", "flush", "--queue", "default", "--yes"),
        ("failed", "prune", "--older", "1h"),
    ):
        done = inline.ok(*words)
        assert "No failed job matches." in done.err, words
    assert states(q, spread) == ["failed"] * 3


def test_a_question_names_the_number_in_each_queue(inline: Inline, q: DelayQ, spread: dict[str, str]) -> None:
    asked = inline("failed", "flush")
    assert (asked.code, asked.out) == (2, "")
    assert "Drop every failed job: 1 in mail, 1 in orders, 1 in vip?" in asked.err
    asked = inline("failed", "forget", "--name", "b*", "--queue", "vip,mail")
    assert "Drop every failed job named b*: 1 in vip, 1 in mail?" in asked.err
    assert states(q, spread) == ["failed"] * 3


def test_forget_flush_and_prune_mean_all_queues(inline: Inline, q: DelayQ, spread: dict[str, str]) -> None:
    done = inline.ok("failed", "forget", "--all", "--queue", "mail", "--yes", "--json")
    assert done.documents == [{"id": "f0", "queue": "mail", "outcome": "forgotten"}]
    assert inline.ok("failed", "prune", "--older", "0s", "--queue", "orders").out == "1\n"
    assert inline.ok("failed", "flush", "--yes", "--json").documents == [
        {"queue": "mail", "dropped": 0},
        {"queue": "orders", "dropped": 0},
        {"queue": "vip", "dropped": 1},
    ]
    assert states(q, spread) == ["absent"] * 3


def test_an_id_of_another_queue_is_named_and_left_alone(inline: Inline, q: DelayQ, spread: dict[str, str]) -> None:
    for verb in ("retry", "forget"):
        done = inline("failed", verb, "f1")
        assert done.code == 3
        assert "'orders'" in done.err
        assert "--queue" in done.err
    several = inline("failed", "retry", "f1", "--queue", "mail,orders")
    assert (several.code, several.out) == (2, "")
    assert "one queue" in several.err
    assert states(q, spread) == ["failed"] * 3
    assert inline.ok("failed", "retry", "f1", "--queue", "orders").lines == ["f1"]


def test_show_finds_what_list_shows(inline: Inline, q: DelayQ, spread: dict[str, str]) -> None:
    assert inline.ok("failed", "show", "f1", "--json").json["queue"] == "orders"
    assert inline.ok("failed", "show", "f1", "--queue", "mail,orders", "--json").json["queue"] == "orders"
    assert inline("failed", "show", "f1", "--queue", "mail,vip").code == 3


def test_groups_are_listed_and_one_is_retried(inline: Inline, q: DelayQ, three: tuple[str, ...]) -> None:
    [large] = inline("failed", "groups", "--json").documents
    assert (large["name"], large["type"], large["message"], large["count"]) == ("bad", "ValueError", "no b#", 3)
    assert (large["sample"]["id"], large["sample"]["message"]) == ("b2", "no b2")
    assert "--looks" in inline("failed", "groups", "--looks", "2").err
    assert inline("failed", "retry", "--signature", "no").code == 2
    assert inline("failed", "retry", "--signature", large["signature"]).lines == list(three)


def test_one_job_is_retried_with_another_payload(inline: Inline, q: DelayQ, three: tuple[str, ...]) -> None:
    new = '{"text": "better"}'
    assert inline("failed", "retry", "b1", "b2", "--data", new).code == 2
    assert inline("failed", "retry", "b0", "--data", new).code == 0
    info = q.get("b0")
    assert info is not None
    assert (info.state, info.data) == (State.SCHEDULED, {"text": "better"})
    assert state(q, "b1") == State.FAILED
