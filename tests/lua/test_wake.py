"""The wake-up: published exactly when the head of a queue moves earlier, with the queue's name and the due time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from delayq.core.envelope import fingerprint
from delayq.core.states import OnConflict
from delayq.redis.calls import deliver, inspect, produce
from delayq.redis.calls.call import Call
from delayq.redis.calls.deliver import Released
from delayq.redis.keys import GROUP
from tests.support.engine import START, Engine, envelope
from tests.support.listener import Listener, listening
from tests.support.waiting import wait_until


@pytest.fixture
def ear(engine: Engine) -> Iterator[Listener]:
    with listening(engine) as listener:
        yield listener


def due(after_ms: int) -> list[str]:
    return [f"orders {START + after_ms}"]


ALWAYS = [OnConflict.KEEP, OnConflict.REPLACE]


@pytest.mark.parametrize("on_conflict", ALWAYS)
def test_schedule(engine: Engine, ear: Listener, on_conflict: OnConflict) -> None:
    def hear(*whens: int) -> list[str]:
        jobs = [engine.job(f"j{after_ms}", f"+{after_ms}") for after_ms in whens]
        return ear.heard(engine.scheduling(jobs, on_conflict))

    assert hear(100) == due(100), "the first job of all"
    assert hear(200) == [], "behind the head"
    assert hear(50) == due(50), "before it"
    assert hear(50) == [], "taken, or the same time"
    assert hear(300, 30, 40) == due(30), "once a batch, the earliest of it"


def test_schedule_straight_into_the_stream_wakes_no_mover(engine: Engine, ear: Listener) -> None:
    assert ear.heard(engine.scheduling([engine.job("a", "+0")])) == []


def test_schedule_due_now_that_has_to_wait(engine: Engine, ear: Listener) -> None:
    engine.run(inspect.pause(engine.scope, 0))
    assert ear.heard(engine.scheduling([engine.job("a", "+0")])) == due(0)


def test_schedule_kept(engine: Engine, ear: Listener) -> None:
    engine.schedule([engine.job("a", "+100")])
    ear.heard()
    assert ear.heard(engine.scheduling([engine.job("a", "+5")])) == []


@pytest.mark.parametrize("on_conflict", [OnConflict.REPLACE, OnConflict.POSTPONE])
def test_a_head_that_moves(engine: Engine, ear: Listener, on_conflict: OnConflict) -> None:
    engine.schedule([engine.job("a", "+100"), engine.job("b", "+200")])
    ear.heard()
    assert ear.heard(engine.scheduling([engine.job("a", "+300")], on_conflict)) == [], "later"
    assert ear.heard(engine.scheduling([engine.job("a", "+150")], on_conflict)) == due(150), "earlier"


def test_reschedule(engine: Engine, ear: Listener) -> None:
    engine.schedule([engine.job("a", "+100"), engine.job("b", "+200")])
    ear.heard()
    assert ear.heard(produce.reschedule(engine.scope, "b", "+150")) == []
    assert ear.heard(produce.reschedule(engine.scope, "b", "+50")) == due(50)
    assert ear.heard(produce.reschedule(engine.scope, "b", "+50")) == []
    assert ear.heard(produce.reschedule(engine.scope, "b", "+900")) == []


def test_release(engine: Engine, ear: Listener) -> None:
    one, two, three, four = engine.reserved("a", "b", "c", "d")

    def back(held: deliver.Held, delay_ms: int) -> Call[list[bool]]:
        return deliver.release(engine.scope, [Released(held, delay_ms)])

    assert ear.heard(back(one, 100)) == due(100)
    assert ear.heard(back(two, 100)) == []
    assert ear.heard(back(three, 50)) == due(50)
    assert ear.heard(back(three, 5)) == [], "fenced"
    assert ear.heard(back(four, 0)) == due(0)


def test_run_now(engine: Engine, ear: Listener) -> None:
    engine.schedule([engine.job("a", "+100"), engine.job("b", "+200")])
    ear.heard()
    assert ear.heard(produce.run_now(engine.scope, "b")) == [], "into the stream"
    engine.run(inspect.pause(engine.scope, 0))
    assert ear.heard(produce.run_now(engine.scope, "a")) == due(0)
    assert ear.heard(produce.run_now(engine.scope, "a")) == []


def test_retry(engine: Engine, ear: Listener) -> None:
    engine.failed("a", "b")

    def again(name: str) -> Call[produce.Outcome]:
        raw = engine.client.hget(engine.keys.of("jobs"), name)
        return produce.retry(engine.scope, name, fingerprint(raw), envelope(name), "")

    assert ear.heard(again("a")) == due(0)
    assert ear.heard(again("b")) == []


def test_resume_lets_the_mover_look_again(engine: Engine, ear: Listener) -> None:
    assert ear.heard(inspect.pause(engine.scope, 0)) == []
    assert ear.heard(inspect.resume(engine.scope)) == due(0)


def test_what_moves_no_head_earlier_is_silent(engine: Engine, ear: Listener) -> None:
    held = engine.reserved("a", "b", "c")
    engine.schedule([engine.job("s", "+100")])
    ear.heard()
    scope = engine.scope
    calls: list[Call[Any]] = [
        deliver.promote(scope),
        deliver.ack(scope, [deliver.Acked(held[0])]),
        deliver.fail(scope, [deliver.Failed(held[1], b"", b"{}")]),
        deliver.hand_back(scope, [held[2]]),
        deliver.tidy(scope),
        produce.cancel(scope, "s", running=False, token="t"),
        produce.forget(scope, ["b"]),
    ]
    assert [ear.heard(call) for call in calls] == [[]] * len(calls)


def test_what_waits_for_a_relay_wakes_the_mover_that_tells_it(engine: Engine, ear: Listener) -> None:
    """Members of a batch that end without a worker: their batch hears of it from the queue's outbox."""
    scope, raw = engine.scope, engine.job("m").envelope[:-1] + b',"batch":{"id":"b"}}'

    def make_member(job_id: str) -> None:
        engine.client.hset(engine.keys.of("jobs"), job_id, raw)
        ear.heard()

    engine.schedule([engine.job("head", "+100"), engine.job("m1"), engine.job("m2"), engine.job("m3")])
    make_member("m1")
    assert len(ear.heard(produce.cancel(scope, "m1", running=False, token="cancel"))) == 1
    make_member("m2")
    assert len(ear.heard(engine.scheduling([engine.job("m2")], OnConflict.REPLACE))) == 1
    make_member("m3")
    assert len(ear.heard(inspect.clear(scope))) == 1
    (held,) = engine.reserved("m4")
    make_member("m4")
    last = engine.with_options(max_recoveries=0).scope
    assert len(ear.heard(deliver.recover(last, [held]))) == 1


def test_a_member_that_fails_with_its_worker_wakes_the_mover(engine: Engine, ear: Listener) -> None:
    raw = engine.job("m").envelope[:-1] + b',"batch":{"id":"b"}}'
    engine.reserved("m", consumer="plain")
    engine.client.hset(engine.keys.of("jobs"), "m", raw)
    engine.client.hset(engine.keys.meta, mapping={"lease_ms": 1, "reclaim_tick": START})
    wait_until(lambda: engine.client.xpending_range(engine.keys.stream, GROUP, "-", "+", 1)[0]["time_since_delivered"])
    last = engine.with_options(max_recoveries=0).scope
    ear.heard()
    assert len(ear.heard(deliver.reclaim(last))) == 1


def test_each_queue_speaks_for_itself(engine: Engine, ear: Listener) -> None:
    other = Engine(engine.client, queue="mail:eu")
    other.run(other.scheduling([other.job("a", "+100")]))
    assert ear.heard() == [f"mail:eu {START + 100}"]
