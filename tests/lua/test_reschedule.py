"""reschedule: a job that nobody has taken gets a new due time."""

from __future__ import annotations

import pytest
from redis.exceptions import ResponseError

from delayq.core.states import Answer, State
from delayq.redis.calls import deliver, produce
from tests.support.engine import HOUR, START, Engine


def test_a_scheduled_job(each_engine: Engine) -> None:
    engine = each_engine
    engine.schedule([engine.job("a"), engine.job("b")])
    answer, names = engine.changes(produce.reschedule(engine.scope, "a", "+5"))
    assert answer == (Answer.RESCHEDULED, START + 5, "")
    assert names == {"scheduled"}
    assert engine.scores("scheduled") == {"a": START + 5, "b": START + HOUR}


def test_a_ready_job_goes_back_to_the_set(each_engine: Engine) -> None:
    engine = each_engine
    engine.ready("a", "b")
    answer, names = engine.changes(produce.reschedule(engine.scope, "a", "+5"))
    assert answer.answer == Answer.RESCHEDULED
    assert names == {"scheduled", "entries", "stream"}
    assert (engine.in_stream(), engine.scores("scheduled")) == (["b"], {"a": START + 5})
    assert [held.id for held in engine.read()] == ["b"]


def test_who_gives_it_a_new_time_wants_it_to_run(engine: Engine) -> None:
    (held,) = engine.reserved("a")
    engine.run(produce.cancel(engine.scope, "a", running=True, token="t"))
    engine.run(deliver.hand_back(engine.scope, [held]))
    assert engine.run(produce.reschedule(engine.scope, "a", "+5")).answer == Answer.RESCHEDULED
    assert engine.rows("cancel") == {}


def test_to_a_point_in_time(engine: Engine) -> None:
    engine.schedule([engine.job("a")])
    assert engine.run(produce.reschedule(engine.scope, "a", str(START + 77))).due_ms == START + 77


def test_to_the_past_it_is_due_at_once(engine: Engine) -> None:
    engine.schedule([engine.job("a")])
    assert engine.run(produce.reschedule(engine.scope, "a", str(START - HOUR))).due_ms == START
    assert engine.run(deliver.promote(engine.scope)).moved == 1


def test_what_a_retry_waits_with_is_kept(engine: Engine) -> None:
    (held,) = engine.reserved("a", digest="d")
    engine.client.hset(engine.keys.of("recoveries"), "a", 1)
    engine.run(deliver.release(engine.scope, [deliver.Released(held, 500, b"", b"{}")]))
    _, names = engine.changes(produce.reschedule(engine.scope, "a", "+5"))
    assert names == {"scheduled"}


@pytest.mark.parametrize("when", ["soon", "", "nan", "inf", "9007199254740992", "+9007199254740991"])
def test_a_time_that_is_none(engine: Engine, when: str) -> None:
    engine.schedule([engine.job("a")])
    with pytest.raises(ResponseError, match="when is"):
        engine.unchanged(produce.reschedule(engine.scope, "a", when))


@pytest.mark.parametrize("state", [State.RESERVED, State.FAILED, State.COMPLETED, State.ABSENT])
def test_refusals_have_no_due_time(engine: Engine, state: State) -> None:
    engine.put("a", state)
    assert engine.unchanged(produce.reschedule(engine.scope, "a", "+5")).due_ms is None
