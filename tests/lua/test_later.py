"""later: plain jobs, due later, the short way; whatever else they are, nothing is done and `schedule` is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import redis
from msgspec.structs import replace

from delayq.core.options import Options
from delayq.core.shards import Layout
from delayq.core.states import Answer, OnConflict, State
from delayq.redis.calls import inspect, produce
from delayq.redis.client import Client
from delayq.redis.connect import Connector
from tests.support.engine import HOUR, START, Engine
from tests.support.listener import listening
from tests.support.traffic import commands

SOON = produce.SOON_MS


@pytest.fixture
def known(each_engine: Engine) -> Engine:
    """A queue that had a job before."""
    each_engine.schedule([each_engine.job("before", "+60000")])
    return each_engine


def test_it_leaves_what_schedule_leaves(known: Engine) -> None:
    done, names = known.changes(known.later("a"))
    (other,), others = known.changes(known.scheduling([known.job("b")]))[0].refs, {"jobs", "scheduled", "meta"}
    (ref,) = done.refs
    assert names == others
    assert (ref.id, ref.queue, ref.state, ref.due_ms, ref.outcome, ref.name) == (
        "a", "orders", State.SCHEDULED, START + HOUR, Answer.CREATED, "order.close",
    )  # fmt: skip
    assert replace(ref, id="b") == other
    assert known.scores("scheduled") == {"before": START + 60_000, "a": START + HOUR, "b": START + HOUR}
    assert known.rows("jobs")["a"].encode() == known.job("a").envelope
    assert known.rows("meta")["scheduled_total"] == "3"


def test_many_are_as_many_by_themselves(known: Engine) -> None:
    whens = {"c": HOUR, "a": SOON, "b": HOUR + 1, "d": SOON}
    jobs = [known.job(name, f"+{delay}") for name, delay in whens.items()]
    call = produce.later(known.scope, jobs, OnConflict.KEEP)
    assert call is not None
    refs = known.run(call).refs
    assert [(ref.id, ref.due_ms, ref.outcome) for ref in refs] == [
        (name, START + delay, Answer.CREATED) for name, delay in whens.items()
    ]
    assert known.scores("scheduled") == {"before": START + 60_000} | {n: START + delay for n, delay in whens.items()}
    assert {name: known.rows("jobs")[name].encode() for name in whens} == {job.id: job.envelope for job in jobs}
    assert known.rows("meta")["scheduled_total"] == "5"


def test_a_call_may_hold_500(engine: Engine) -> None:
    engine.schedule([engine.job("before")])
    assert len(engine.run(engine.later(*(f"j{n}" for n in range(500)))).refs) == 500
    assert engine.client.zcard(engine.keys.of("scheduled")) == engine.client.hlen(engine.keys.of("jobs")) == 501


def test_a_new_queue_is_for_schedule(engine: Engine) -> None:
    assert engine.unchanged(engine.later("a")).undone
    assert engine.unchanged(engine.later("a", "b")).undone


def test_an_id_said_twice_is_for_schedule(engine: Engine) -> None:
    engine.schedule([engine.job("before")])
    assert engine.unchanged(engine.later("a", "b", "a")).undone


@pytest.mark.parametrize("ids", [("j",), ("a", "j", "b")])
@pytest.mark.parametrize("state", [state for state in State if state is not State.ABSENT])
def test_an_id_that_is_taken_is_for_schedule(engine: Engine, state: State, ids: tuple[str, ...]) -> None:
    engine.put("j", state)
    assert engine.unchanged(engine.later(*ids)).undone


@pytest.mark.parametrize("ids", [("j",), ("a", "j", "b")])
def test_an_id_with_an_entry_is_taken_without_its_payload_too(engine: Engine, ids: tuple[str, ...]) -> None:
    engine.reserved("j")
    raw = engine.client.hget(engine.keys.of("jobs"), "j")
    with engine.damaged():
        engine.client.hdel(engine.keys.of("jobs"), "j")
        assert engine.unchanged(engine.later(*ids)).undone
        engine.client.hset(engine.keys.of("jobs"), "j", raw)


def test_another_layout_is_for_schedule(engine: Engine) -> None:
    engine.schedule([engine.job("before")])
    call = produce.later(replace(engine.scope, layout=Layout(4, START, (1,))), [engine.job("a")], OnConflict.KEEP)
    assert call is not None
    assert engine.unchanged(call).undone


@pytest.mark.parametrize("when", ["soon", "", "+", "nan", "inf", "+nan", "9007199254740992", "0", "-5", str(START)])
def test_a_time_that_is_none_or_has_come_is_for_schedule(engine: Engine, when: str) -> None:
    engine.schedule([engine.job("before")])
    for call in (engine.later("a"), engine.later("a", "b")):
        assert engine.unchanged(replace(call, args=(*call.args[:-1], when))).undone


@pytest.mark.parametrize("for_ms", [0, 5_000])
def test_a_pause_is_nothing_to_a_job_that_waits(engine: Engine, for_ms: int) -> None:
    engine.schedule([engine.job("before")])
    engine.run(inspect.pause(engine.scope, for_ms))
    assert not engine.run(engine.later("a")).undone


def test_the_mover_is_woken_for_a_new_head_alone(engine: Engine) -> None:
    engine.schedule([engine.job("before")])
    with listening(engine) as ear:
        assert ear.heard(engine.later("a", "aa", when=f"+{SOON}")) == [f"orders {START + SOON}"]
        assert ear.heard(engine.later("b", when=f"+{SOON}")) == []
        assert ear.heard(engine.later("c", "cc")) == []
        engine.client.delete(engine.keys.of("scheduled"), engine.keys.of("jobs"))
        assert ear.heard(engine.later("d")) == [f"orders {START + HOUR}"], "the first of all"


NOT_PLAIN: dict[str, Callable[[Engine], object]] = {
    "it is due soon": lambda e: produce.later(e.scope, [e.job("a", f"+{SOON - 1}")], OnConflict.KEEP),
    "one of them is": lambda e: produce.later(e.scope, [e.job("b"), e.job("a", "+0")], OnConflict.KEEP),
    "it is due at a time": lambda e: produce.later(e.scope, [e.job("a", str(START + HOUR))], OnConflict.KEEP),
    "it has a lock": lambda e: produce.later(e.scope, [e.job("b"), e.job("a", digest="d")], OnConflict.KEEP),
    "it is only looked for": lambda e: produce.later(replace(e.scope, asks=True), [e.job("a")], OnConflict.KEEP),
    "an error is wanted": lambda e: produce.later(e.scope, [e.job("a")], OnConflict.ERROR),
    "it takes a place": lambda e: produce.later(e.scope, [e.job("a")], OnConflict.REPLACE),
    "it moves a time": lambda e: produce.later(e.scope, [e.job("a")], OnConflict.POSTPONE),
}


@pytest.mark.parametrize("why", NOT_PLAIN)
def test_it_is_not_asked_when(engine: Engine, why: str) -> None:
    assert NOT_PLAIN[why](engine) is None


@pytest.fixture
def client(redis_url: str) -> Iterator[Client]:
    connector = Connector(redis_url)
    yield Client(connector, Options())
    connector.close()


def test_a_client_asks_schedule_when_it_has_to(client: Client, redis_client: redis.Redis) -> None:
    first = client.schedule("note", id="a", delay="1h")
    assert first.outcome == Answer.CREATED, "in a new queue"
    with commands(redis_client) as sent:
        again = client.schedule("note", id="a", delay="2h")
    assert (again.outcome, again.due_ms) == (Answer.KEPT, first.due_ms)
    assert sent["EVALSHA"] == 2
    with commands(redis_client) as sent:
        assert client.schedule("note", id="b", delay="2h").outcome == Answer.CREATED
        assert client.schedule("note", delay="2h").outcome == Answer.CREATED
    assert sent == {"EVALSHA": 2}


def test_many_go_the_short_way_and_those_it_leaves_the_long_one(client: Client, redis_client: redis.Redis) -> None:
    """A new queue's first call is for schedule; the second chunk has an id that is taken, the third has none."""
    jobs = [{"name": "note", "id": f"j{n:03d}", "delay": "1h"} for n in range(3 * produce.CHUNK)]
    taken = produce.CHUNK + 7
    client.schedule_many([jobs[taken]])
    with commands(redis_client) as sent:
        refs = client.schedule_many(jobs)
    assert [ref.id for ref in refs] == [job["id"] for job in jobs]
    assert {n for n, ref in enumerate(refs) if ref.outcome != Answer.CREATED} == {taken}
    assert refs[taken].outcome == Answer.KEPT
    assert sent["EVALSHA"] == 4, "one of the three was left"
    assert client.stats()[0].scheduled == len(jobs)


def test_of_an_id_that_is_there_twice_the_first_is_made(client: Client) -> None:
    """Also when they lie in two chunks, of which another job keeps the first from the short way."""
    jobs = [{"name": "note", "id": f"j{n:03d}", "delay": "1h", "data": n} for n in range(2 * produce.CHUNK)]
    client.schedule_many([{**jobs[3], "data": "before"}])
    jobs[-1]["id"] = "j000"
    refs = client.schedule_many(jobs)
    assert [(refs[n].id, refs[n].outcome) for n in (0, 3, -1)] == [
        ("j000", Answer.CREATED), ("j003", Answer.KEPT), ("j000", Answer.KEPT),
    ]  # fmt: skip
    first, taken = client.get("j000"), client.get("j003")
    assert first is not None
    assert taken is not None
    assert (first.data, taken.data) == (0, "before")
