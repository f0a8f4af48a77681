"""run_now: a waiting job shall not wait any longer."""

from __future__ import annotations

import pytest

from delayq.core.states import Answer, State
from delayq.redis.calls import deliver, inspect, produce
from delayq.redis.keys import GROUP
from tests.support.engine import HOUR, START, Engine


def run_now(engine: Engine, job_id: str = "a") -> produce.Outcome:
    return engine.run(produce.run_now(engine.scope, job_id))


def test_it_goes_straight_into_the_stream(each_engine: Engine) -> None:
    engine, job = each_engine, each_engine.job("a")
    engine.schedule([job, engine.job("b")])
    engine.client.hset(engine.keys.of("recoveries"), "a", 2)
    answer, names = engine.changes(produce.run_now(engine.scope, "a"))
    assert answer == (Answer.READY, START, "")
    assert names == {"scheduled", "stream", "entries"}
    ((entry, fields),) = engine.entries()
    assert fields == {"id": "a", "job": job.envelope.decode(), "due": str(START), "recoveries": "2"}
    assert (engine.rows("entries"), list(engine.scores("scheduled"))) == ({"a": entry}, ["b"])


def test_what_was_overdue_goes_into_the_stream_with_its_time(engine: Engine) -> None:
    engine.schedule([engine.job("a", "+5")])
    engine.now += HOUR
    assert run_now(engine).due_ms == START + 5
    assert engine.entries()[0][1]["due"] == str(START + 5)


def test_already_ready(engine: Engine) -> None:
    engine.ready("a")
    assert engine.unchanged(produce.run_now(engine.scope, "a")) == (Answer.READY, None, "")


def test_on_a_paused_queue_it_is_due_now_and_waits(engine: Engine) -> None:
    engine.schedule([engine.job("a")])
    engine.run(inspect.pause(engine.scope, 0))
    answer, names = engine.changes(produce.run_now(engine.scope, "a"))
    assert (answer, names) == ((Answer.SCHEDULED, START, ""), {"scheduled"})
    assert engine.scores("scheduled") == {"a": START}


def test_on_a_paused_queue_what_is_overdue_is_due_now_too(engine: Engine) -> None:
    engine.run(inspect.pause(engine.scope, 0))
    engine.schedule([engine.job("a", "+5"), engine.job("b", "+6")])
    engine.now += HOUR
    answer, names = engine.changes(produce.run_now(engine.scope, "a"))
    assert (answer, names) == ((Answer.SCHEDULED, START + HOUR, ""), {"scheduled"})
    assert engine.scores("scheduled") == {"a": START + HOUR, "b": START + 6}


def test_above_the_high_water_mark_it_is_due_now_and_waits(engine: Engine) -> None:
    engine.ready("full")
    engine.schedule([engine.job("a")])
    narrow = engine.with_options(high_water=1)
    assert run_now(narrow).answer == Answer.SCHEDULED
    assert (engine.in_stream(), engine.scores("scheduled")) == (["full"], {"a": START})


def test_it_makes_no_stream(engine: Engine) -> None:
    engine.schedule([engine.job("a")])
    engine.client.delete(engine.keys.stream)
    assert run_now(engine).answer == Answer.SCHEDULED
    assert not engine.client.exists(engine.keys.stream)


def test_without_its_payload_it_waits_for_the_mover_to_find_out(engine: Engine) -> None:
    engine.schedule([engine.job("a")])
    with engine.damaged():
        engine.client.hdel(engine.keys.of("jobs"), "a")
        assert run_now(engine).answer == Answer.SCHEDULED
        engine.run(deliver.promote(engine.scope))
    assert engine.state("a") == State.FAILED


@pytest.mark.parametrize("group", ["there", "gone"])
def test_a_stream_without_its_group_takes_it_all_the_same(engine: Engine, group: str) -> None:
    engine.schedule([engine.job("a")])
    if group == "gone":
        engine.client.xgroup_destroy(engine.keys.stream, GROUP)
    assert run_now(engine).answer == Answer.READY
    assert run_now(engine).answer == (Answer.READY if group == "there" else Answer.RUNNING)
