"""schedule: new jobs go where they wait, or straight into the stream; taken ids stay as they are."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from redis.exceptions import ResponseError

from delayq.core.states import Answer, OnConflict, State
from delayq.redis.calls import deliver, inspect
from tests.support.engine import HOUR, START, Engine


def test_a_job_for_later(each_engine: Engine) -> None:
    engine, job = each_engine, each_engine.job("a")
    scheduled, names = engine.changes(engine.scheduling([job]))
    (ref,) = scheduled.refs
    assert (ref.id, ref.state, ref.due_ms, ref.outcome) == ("a", State.SCHEDULED, START + HOUR, Answer.CREATED)
    assert scheduled.new_queue
    assert names == {"scheduled", "jobs", "stream", "meta"}
    assert engine.scores("scheduled") == {"a": START + HOUR}
    assert engine.rows("jobs") == {"a": job.envelope.decode()}
    assert engine.rows("meta") == {"schema": "1", "lease_ms": "30000", "shards": "1", "scheduled_total": "1"}
    assert engine.entries() == []
    assert engine.last_delivered() == "0-0"


def test_a_job_due_now(each_engine: Engine) -> None:
    engine, job = each_engine, each_engine.job("a", "+0")
    scheduled, names = engine.changes(engine.scheduling([job], token="t"))
    assert (scheduled.refs[0].state, scheduled.refs[0].due_ms) == (State.READY, START)
    assert names == {"jobs", "stream", "entries", "meta", "once:t"}
    ((entry, fields),) = engine.entries()
    assert fields == {"id": "a", "job": job.envelope.decode(), "due": str(START), "recoveries": "0"}
    assert engine.rows("entries") == {"a": entry}


def test_a_due_time_long_past_means_now(engine: Engine) -> None:
    engine.schedule([engine.job("a", str(START - HOUR))])
    assert engine.entries()[0][1]["due"] == str(START)


def test_the_queue_is_new_once(engine: Engine) -> None:
    assert engine.run(engine.scheduling([engine.job("a")])).new_queue
    assert not engine.run(engine.scheduling([engine.job("b")])).new_queue


def test_behind_a_due_head_a_job_waits_its_turn(engine: Engine) -> None:
    engine.schedule([engine.job("head", "+10")])
    engine.now += 10
    engine.schedule([engine.job("a", "+0")])
    assert engine.in_stream() == []
    assert list(engine.scores("scheduled")) == ["a", "head"], "equal times, so in the order of their ids"


def test_before_a_head_that_is_not_due_it_does_not_wait(engine: Engine) -> None:
    engine.schedule([engine.job("head", "+10")])
    engine.schedule([engine.job("a", "+0")])
    assert engine.in_stream() == ["a"]


@pytest.mark.parametrize("for_ms", [0, 5_000])
def test_while_paused_a_job_waits(engine: Engine, for_ms: int) -> None:
    engine.run(inspect.pause(engine.scope, for_ms))
    engine.schedule([engine.job("a", "+0")])
    assert (engine.in_stream(), list(engine.scores("scheduled"))) == ([], ["a"])


def test_after_a_pause_has_run_out_it_does_not(engine: Engine) -> None:
    engine.run(inspect.pause(engine.scope, 5_000))
    engine.now += 5_000
    engine.schedule([engine.job("a", "+0")])
    assert engine.in_stream() == ["a"]


def test_above_the_high_water_mark_the_rest_of_a_batch_waits(engine: Engine) -> None:
    narrow = engine.with_options(high_water=2)
    refs = narrow.run(narrow.scheduling([narrow.job(name, "+0") for name in "abc"])).refs
    assert [ref.state for ref in refs] == [State.READY, State.READY, State.SCHEDULED]
    assert (narrow.in_stream(), list(narrow.scores("scheduled"))) == (["a", "b"], ["c"])
    narrow.schedule([narrow.job("d", "+0")])
    assert narrow.in_stream() == ["a", "b"]


def test_one_batch_with_every_outcome(engine: Engine) -> None:
    engine.schedule([engine.job("old")])
    jobs = [engine.job("new", "+5"), engine.job("old", "+5"), engine.job("new", "+9"), engine.job("now", "+0")]
    refs = engine.run(engine.scheduling(jobs)).refs
    assert [(ref.outcome, ref.state, ref.due_ms) for ref in refs] == [
        (Answer.CREATED, State.SCHEDULED, START + 5),
        (Answer.KEPT, State.SCHEDULED, START + HOUR),
        (Answer.KEPT, State.SCHEDULED, START + 5),
        (Answer.CREATED, State.READY, START),
    ]


@pytest.mark.parametrize("when", ["+0", "+5"])
def test_a_taken_id_keeps_its_payload_and_is_free_when_its_job_is_over(engine: Engine, when: str) -> None:
    engine.schedule([engine.job("a", when, data=b'"first"')])
    again = engine.scheduling([engine.job("a", "+9", data=b'"second"')])
    assert [ref.outcome for ref in engine.unchanged(again).refs] == [Answer.KEPT]
    engine.now += 5
    engine.run(deliver.promote(engine.scope))
    assert b'"data":"first"' in engine.entries()[0][1]["job"].encode()
    assert engine.run(deliver.done(engine.scope, *zip(*[(held.id, held.entry) for held in engine.read()], strict=True)))
    assert [ref.outcome for ref in engine.run(again).refs] == [Answer.CREATED]
    assert '"data":"second"' in engine.rows("jobs")["a"]


def test_an_id_taken_earlier_in_the_batch_by_a_job_due_now(engine: Engine) -> None:
    refs = engine.run(engine.scheduling([engine.job("a", "+0"), engine.job("a", "+5")])).refs
    assert [(ref.outcome, ref.state) for ref in refs] == [(Answer.CREATED, State.READY), (Answer.KEPT, State.READY)]


def test_kept_tells_where_the_job_is(engine: Engine) -> None:
    engine.failed("failed")
    engine.completed("completed")
    engine.reserved("reserved")
    engine.ready("ready")
    engine.schedule([engine.job("scheduled")])
    names = ["scheduled", "ready", "reserved", "failed", "completed"]
    scheduled = engine.unchanged(engine.scheduling([engine.job(name) for name in names]))
    assert [str(ref.state) for ref in scheduled.refs] == names
    assert [ref.due_ms for ref in scheduled.refs] == [START + HOUR, None, None, None, None]


def test_nothing_to_schedule_changes_nothing(engine: Engine) -> None:
    engine.schedule([engine.job("a")])
    assert engine.unchanged(engine.scheduling([])).refs == []


@pytest.mark.parametrize("on_conflict", [OnConflict.KEEP, OnConflict.ERROR])
def test_a_resend_answers_as_the_first_time(engine: Engine, on_conflict: OnConflict) -> None:
    call = engine.scheduling([engine.job("a", "+0")], on_conflict, token="t")
    assert engine.run(call).refs[0].outcome == Answer.CREATED
    (held,) = engine.read()
    engine.run(deliver.ack(engine.scope, [deliver.Acked(held)]))
    assert engine.unchanged(call).refs[0].outcome == Answer.CREATED, "done and forgotten, and still not made anew"
    assert 0 < engine.client.pttl(engine.keys.once("t")) <= 60_000


def test_a_job_far_off_needs_no_token(engine: Engine) -> None:
    engine.run(engine.scheduling([engine.job("a", "+15000")], token="t"))
    assert not engine.client.exists(engine.keys.once("t"))
    assert engine.unchanged(engine.scheduling([engine.job("a", "+15000")])).refs[0].outcome == Answer.KEPT


@pytest.mark.parametrize("data", [b"\x00\xff\xfe", b'"\\ud800"', b"[]", b"{}", b"9007199254740993", b"-0.0", b'"]]"'])
@pytest.mark.parametrize("when", ["+0", "+9"])
def test_payloads_are_bytes_to_it(engine: Engine, data: bytes, when: str) -> None:
    engine.schedule([replace(engine.job("a", when), envelope=data)])
    engine.now += 9
    engine.run(deliver.promote(engine.scope))
    assert engine.client.hget(engine.keys.of("jobs"), "a") == data
    assert engine.client.xrange(engine.keys.stream)[0][1][b"job"] == data


@pytest.mark.parametrize(
    "when", ["soon", "", "+", "nan", "inf", "-inf", "+nan", "9007199254740992", "+9007199254740991"]
)
@pytest.mark.parametrize("on_conflict", list(OnConflict))
def test_a_due_time_that_is_none_refuses_the_batch_whole(engine: Engine, when: str, on_conflict: OnConflict) -> None:
    good = engine.scheduling([engine.job("a"), engine.job("b")], on_conflict)
    at = len(good.args) - 2
    bad = replace(good, args=(*good.args[:at], when, *good.args[at + 1 :]))
    with pytest.raises(ResponseError, match="a job is: id, envelope"):
        engine.unchanged(bad)
    assert not list(engine.client.scan_iter())


@pytest.mark.parametrize("on_conflict", [OnConflict.KEEP, OnConflict.REPLACE])
@pytest.mark.parametrize("missing", [1, 2, 3])
def test_half_a_job_refuses_the_batch_whole(engine: Engine, on_conflict: OnConflict, missing: int) -> None:
    good = engine.scheduling([engine.job("a"), engine.job("b")], on_conflict)
    with pytest.raises(ResponseError):
        engine.run(replace(good, args=good.args[:-missing]))
    assert not list(engine.client.scan_iter())


def test_a_counter_that_somebody_broke_fails_no_move(engine: Engine) -> None:
    engine.schedule([engine.job("a")])
    engine.client.hset(engine.keys.meta, "scheduled_total", "many")
    assert engine.schedule([engine.job("b")]) == [Answer.CREATED]


def test_the_lease_is_the_first_clients(engine: Engine) -> None:
    engine.with_options(lease_ms=5_000).schedule([engine.job("a")])
    engine.schedule([engine.job("b")])
    assert engine.rows("meta")["lease_ms"] == "5000"
