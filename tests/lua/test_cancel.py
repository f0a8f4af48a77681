"""cancel: a job that nobody has taken will not run; a running one may be asked to stop."""

from __future__ import annotations

from delayq.core.states import Answer, State
from delayq.redis.calls import deliver, produce
from delayq.redis.calls.call import Call
from delayq.redis.keys import Globals
from tests.support.engine import OURS, Engine
from tests.support.listener import listening


def cancelling(engine: Engine, job_id: str = "a", *, running: bool = False, token: str = "t") -> Call[Answer]:
    return produce.cancel(engine.scope, job_id, running=running, token=token)


def test_a_scheduled_job_is_gone_without_a_trace(each_engine: Engine) -> None:
    engine = each_engine
    (held,) = engine.reserved("a", digest="d")
    engine.client.hset(engine.keys.of("recoveries"), "a", 1)
    engine.run(deliver.release(engine.scope, [deliver.Released(held, 500, b"", b"{}")]))
    answer, names = engine.changes(cancelling(engine))
    assert answer == Answer.CANCELLED
    assert names == {"scheduled", "jobs", "errors", "recoveries", "unique", "locks", "meta", "once:t"}
    assert engine.key_names() == {"stream", "meta"}
    assert engine.rows("meta")["cancelled_total"] == "1"


def test_a_ready_job_is_gone_without_a_trace(each_engine: Engine) -> None:
    engine = each_engine
    engine.ready("a", digest="d")
    answer, names = engine.changes(cancelling(engine))
    assert answer == Answer.CANCELLED
    assert names == {"stream", "entries", "jobs", "unique", "locks", "meta", "once:t"}
    assert engine.key_names() == {"stream", "meta"}
    assert engine.read() == []


def test_a_running_job_is_left_alone(engine: Engine) -> None:
    (held,) = engine.reserved("a")
    assert engine.unchanged(cancelling(engine)) == Answer.RUNNING
    assert engine.pending() == {held.entry: OURS}


def test_or_asked_to_stop(engine: Engine) -> None:
    engine.reserved("a")
    assert engine.changes(cancelling(engine, running=True)) == (Answer.RUNNING, {"cancel"})
    assert engine.rows("cancel") == {"a": str(engine.now)}


def test_who_runs_it_is_told(engine: Engine) -> None:
    """Only of a wish: not of a question, nor of a job that nobody runs any more."""
    engine.reserved("a")
    engine.schedule([engine.job("s", "+100")])
    with listening(engine, Globals(engine.options.prefix).cancels) as ear:
        assert ear.heard(cancelling(engine)) == []
        assert ear.heard(cancelling(engine, "s", running=True, token="s")) == []
        assert ear.heard(cancelling(engine, "x", running=True)) == []
        assert ear.heard(cancelling(engine, running=True)) == [f"{engine.scope.queue} a"]


def test_nobody_is_asked_to_stop_what_nobody_runs(engine: Engine) -> None:
    engine.failed("f")
    engine.completed("c")
    answers = [engine.unchanged(cancelling(engine, name, running=True)) for name in ("f", "c", "x")]
    assert answers == [Answer.FAILED, Answer.FINISHED, Answer.UNKNOWN]


def test_a_resend_answers_cancelled_again(engine: Engine) -> None:
    engine.schedule([engine.job("a")])
    call = cancelling(engine)
    assert [engine.run(call), engine.unchanged(call)] == [Answer.CANCELLED, Answer.CANCELLED]
    assert engine.unchanged(cancelling(engine, token="another")) == Answer.UNKNOWN
    assert 0 < engine.client.pttl(engine.keys.once("t")) <= 60_000


def test_also_when_the_id_is_taken_again_meanwhile(engine: Engine) -> None:
    engine.schedule([engine.job("a")])
    call = cancelling(engine)
    engine.run(call)
    engine.schedule([engine.job("a")])
    assert engine.unchanged(call) == Answer.CANCELLED
    assert engine.state("a") == State.SCHEDULED, "the new one is not this call's to cancel"


def test_a_resend_of_what_did_nothing_looks_again(engine: Engine) -> None:
    """The first answer was not this call's doing; the second may be better news."""
    (held,) = engine.reserved("a")
    call = cancelling(engine)
    assert engine.run(call) == Answer.RUNNING
    engine.run(deliver.hand_back(engine.scope, [held]))
    assert engine.run(call) == Answer.CANCELLED


def test_a_full_server_still_says_how_things_are(engine: Engine) -> None:
    engine.reserved("a")
    with engine.full():
        answers = [engine.unchanged(cancelling(engine, name)) for name in ("a", "nobody")]
    assert answers == [Answer.RUNNING, Answer.UNKNOWN]


def test_an_empty_database(engine: Engine) -> None:
    assert engine.unchanged(cancelling(engine)) == Answer.UNKNOWN


def test_only_the_job_named_goes(engine: Engine) -> None:
    engine.ready("b")
    engine.schedule([engine.job("a"), engine.job("aa"), engine.job("c")])
    engine.run(cancelling(engine))
    assert (list(engine.scores("scheduled")), engine.in_stream()) == (["aa", "c"], ["b"])
