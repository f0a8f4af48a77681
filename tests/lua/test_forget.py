"""forget: failed or completed jobs go for good."""

from __future__ import annotations

from delayq.core.states import Answer, State
from delayq.redis.calls import deliver, produce
from tests.support.engine import Engine


def test_forget_leaves_no_trace(each_engine: Engine) -> None:
    engine = each_engine
    engine.failed("f")
    engine.completed("c")
    engine.client.hset(engine.keys.of("recoveries"), "f", 4)
    answers, names = engine.changes(produce.forget(engine.scope, ["f", "c"]))
    assert answers == [Answer.FORGOTTEN, Answer.FORGOTTEN]
    assert names == {"failed", "completed", "jobs", "errors", "results", "recoveries"}
    assert engine.key_names() == {"stream", "meta"}


def test_forget_refuses_what_waits_or_runs(engine: Engine) -> None:
    engine.reserved("r")
    engine.ready("y")
    engine.schedule([engine.job("s")])
    answers = engine.unchanged(produce.forget(engine.scope, ["r", "y", "s", "nobody"]))
    assert answers == [Answer.REFUSED, Answer.REFUSED, Answer.REFUSED, Answer.UNKNOWN]


def test_forget_of_nothing(engine: Engine) -> None:
    engine.failed("f")
    assert engine.unchanged(produce.forget(engine.scope, [])) == []


def test_forget_twice_in_one_call(engine: Engine) -> None:
    engine.failed("f")
    assert engine.run(produce.forget(engine.scope, ["f", "f"])) == [Answer.FORGOTTEN, Answer.UNKNOWN]


def test_forget_keeps_the_payload_of_a_job_that_has_another_place(engine: Engine) -> None:
    """Somebody put it among the failed; a worker has it all the same."""
    engine.reserved("a")
    with engine.damaged():
        engine.client.zadd(engine.keys.of("failed"), {"a": 1})
        assert engine.run(produce.forget(engine.scope, ["a"])) == [Answer.REFUSED]
        engine.run(deliver.mend(engine.scope, ["a"]))
    assert engine.state("a") == State.RESERVED
