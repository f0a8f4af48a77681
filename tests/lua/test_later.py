"""later: one plain job, due later, the short way; whatever else it is, nothing is done and `schedule` is asked."""

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
    ref, names = known.changes(known.later("a"))
    (other,), others = known.changes(known.scheduling([known.job("b")]))[0].refs, {"jobs", "scheduled", "meta"}
    assert ref is not None
    assert names == others
    assert (ref.id, ref.queue, ref.state, ref.due_ms, ref.outcome, ref.name) == (
        "a", "orders", State.SCHEDULED, START + HOUR, Answer.CREATED, "order.close",
    )  # fmt: skip
    assert replace(ref, id="b") == other
    assert known.scores("scheduled") == {"before": START + 60_000, "a": START + HOUR, "b": START + HOUR}
    assert known.rows("jobs")["a"].encode() == known.job("a").envelope
    assert known.rows("meta")["scheduled_total"] == "3"


def test_a_new_queue_is_for_schedule(engine: Engine) -> None:
    assert engine.unchanged(engine.later("a")) is None


@pytest.mark.parametrize("state", [state for state in State if state is not State.ABSENT])
def test_an_id_that_is_taken_is_for_schedule(engine: Engine, state: State) -> None:
    engine.put("j", state)
    assert engine.unchanged(engine.later("j")) is None


def test_an_id_with_an_entry_is_taken_without_its_payload_too(engine: Engine) -> None:
    engine.reserved("j")
    raw = engine.client.hget(engine.keys.of("jobs"), "j")
    with engine.damaged():
        engine.client.hdel(engine.keys.of("jobs"), "j")
        assert engine.unchanged(engine.later("j")) is None
        engine.client.hset(engine.keys.of("jobs"), "j", raw)


def test_another_layout_is_for_schedule(engine: Engine) -> None:
    engine.schedule([engine.job("before")])
    call = produce.later(replace(engine.scope, layout=Layout(4, START, (1,))), engine.job("a"), OnConflict.KEEP)
    assert call is not None
    assert engine.unchanged(call) is None


@pytest.mark.parametrize("when", ["soon", "", "+", "nan", "inf", "+nan", "9007199254740992", "0", "-5", str(START)])
def test_a_time_that_is_none_or_has_come_is_for_schedule(engine: Engine, when: str) -> None:
    engine.schedule([engine.job("before")])
    call = engine.later("a")
    assert engine.unchanged(replace(call, args=(*call.args[:-1], when))) is None


@pytest.mark.parametrize("for_ms", [0, 5_000])
def test_a_pause_is_nothing_to_a_job_that_waits(engine: Engine, for_ms: int) -> None:
    engine.schedule([engine.job("before")])
    engine.run(inspect.pause(engine.scope, for_ms))
    assert engine.run(engine.later("a")) is not None


def test_the_mover_is_woken_for_a_new_head_alone(engine: Engine) -> None:
    engine.schedule([engine.job("before")])
    with listening(engine) as ear:
        assert ear.heard(engine.later("a", f"+{SOON}")) == [f"orders {START + SOON}"]
        assert ear.heard(engine.later("b", f"+{SOON}")) == []
        assert ear.heard(engine.later("c")) == []
        engine.client.delete(engine.keys.of("scheduled"), engine.keys.of("jobs"))
        assert ear.heard(engine.later("d")) == [f"orders {START + HOUR}"], "the first of all"


NOT_PLAIN: dict[str, Callable[[Engine], object]] = {
    "it is due soon": lambda e: produce.later(e.scope, e.job("a", f"+{SOON - 1}"), OnConflict.KEEP),
    "it is due at a time": lambda e: produce.later(e.scope, e.job("a", str(START + HOUR)), OnConflict.KEEP),
    "it has a lock": lambda e: produce.later(e.scope, e.job("a", digest="d"), OnConflict.KEEP),
    "it is only looked for": lambda e: produce.later(replace(e.scope, asks=True), e.job("a"), OnConflict.KEEP),
    "an error is wanted": lambda e: produce.later(e.scope, e.job("a"), OnConflict.ERROR),
    "it takes a place": lambda e: produce.later(e.scope, e.job("a"), OnConflict.REPLACE),
    "it moves a time": lambda e: produce.later(e.scope, e.job("a"), OnConflict.POSTPONE),
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
