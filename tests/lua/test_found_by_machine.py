"""What the state machine of `test_machine.py` found, each sequence at its shortest."""

from __future__ import annotations

import pytest

from delayq.core.states import Answer, OnConflict, State
from delayq.redis.calls import deliver, inspect, produce
from tests.support.engine import HOUR, PLAIN, Engine
from tests.support.repair import repair


@pytest.mark.parametrize(("state", "due"), [(State.RESERVED, False), (State.READY, False), (State.SCHEDULED, True)])
def test_who_asks_for_a_taken_key_hears_where_its_owner_stands(engine: Engine, state: State, due: bool) -> None:
    if state is State.RESERVED:
        engine.reserved("owner", digest="d")
    else:
        engine.schedule([engine.job("owner", f"+{HOUR}" if due else "+0", digest="d")])
    ref = engine.unchanged(engine.scheduling([engine.job("other", digest="d")], OnConflict.REPLACE)).refs[0]
    assert (ref.outcome, ref.id, ref.state) == (Answer.KEPT, "owner", state)
    assert ref.due_ms == (engine.now + HOUR if due else None)


def test_a_postpone_with_a_key_that_another_job_owns_changes_nothing(engine: Engine) -> None:
    engine.schedule([engine.job("owner", digest="d"), engine.job("other")])
    call = engine.scheduling([engine.job("other", "+20000", digest="d")], OnConflict.POSTPONE)
    ref = engine.unchanged(call).refs[0]
    assert (ref.outcome, ref.id) == (Answer.KEPT, "owner")


def test_streams_deleted_again_and_again_never_repeat_a_token(each_engine: Engine) -> None:
    """All within one second: the start of a new stream must not be the start of the one before."""
    tokens = [held.entry for held in each_engine.reserved("a", "b")]
    for _ in range(4):
        with each_engine.damaged():
            each_engine.client.delete(each_engine.keys.stream)
            repair(each_engine)
        tokens += each_engine.rows("entries").values()
    assert len(set(tokens)) == len(tokens)


def test_nor_when_a_foreign_program_makes_the_stream(each_engine: Engine) -> None:
    tokens = [held.entry for held in each_engine.reserved("a", "b")]
    for foreign in (False, False, True, False):
        with each_engine.damaged():
            each_engine.client.delete(each_engine.keys.stream)
            if foreign:
                each_engine.client.xadd(each_engine.keys.stream, {"colour": "blue"})
            repair(each_engine)
        tokens += each_engine.rows("entries").values()
    assert len(set(tokens)) == len(tokens)


@pytest.mark.parametrize("verb", ["schedule", "promote"])
def test_nor_when_a_producer_or_the_mover_makes_the_stream(engine: Engine, verb: str) -> None:
    """Two jobs with one token are as bad: whoever settles the first deletes the entry of the second."""
    engine.reserved("first")
    engine.sound = False
    tokens = []
    for job_id in ("a", "b", "c"):
        if verb == "promote":
            engine.schedule([engine.job(job_id, "+1")])
        engine.client.delete(engine.keys.stream)
        engine.now += 1
        if verb == "promote":
            engine.run(deliver.promote(engine.scope))
        else:
            engine.schedule([engine.job(job_id, "+0")])
        tokens.append(engine.held(job_id).entry)
    assert len(set(tokens)) == len(tokens)


def test_a_wish_to_stop_outlives_the_delivery_that_was_lost(engine: Engine) -> None:
    engine.reserved("a")
    with engine.damaged():
        engine.client.delete(engine.keys.stream)
        assert engine.run(produce.cancel(engine.scope, "a", running=True, token="t")) is Answer.RUNNING
        repair(engine)
    assert engine.state("a") is State.READY
    assert set(engine.rows("cancel")) == {"a"}
    ((_, fields),) = engine.entries()
    assert fields["stop"] == "1"


def test_a_wish_to_stop_without_a_delivery_ends_with_its_job(engine: Engine) -> None:
    engine.schedule([engine.job("a"), engine.job("b")])
    engine.client.hset(engine.keys.of("cancel"), mapping={"a": "1", "b": "1"})
    engine.sound = False
    assert engine.schedule([engine.job("a")], OnConflict.REPLACE) == [Answer.REPLACED]
    assert engine.rows("cancel") == {"b": "1"}
    engine.run(inspect.clear(engine.scope))
    assert engine.rows("cancel") == {}


def test_an_entry_whose_row_is_lost_is_not_taken_for_finished_work(engine: Engine) -> None:
    """reclaim acknowledges it, because it is no job's; beside a plain consumer it then looked acknowledged outside."""
    (held,) = engine.reserved("a", consumer=PLAIN)
    engine.calm()
    with engine.damaged():
        engine.client.hdel(engine.keys.of("entries"), "a")
        engine.rest([held.entry], engine.options.lease_ms)
        engine.run(deliver.reclaim(engine.scope))
        assert engine.pending() == {}
        repair(engine)
    assert engine.state("a") is State.SCHEDULED


def test_an_id_whose_entry_is_there_is_taken_without_its_payload_too(engine: Engine) -> None:
    """Else the old entry's holder settles the new job with it, and that one is gone without a delivery."""
    engine.reserved("a", data=b'"old"')
    with engine.damaged():
        engine.client.hdel(engine.keys.of("jobs"), "a")
        assert engine.schedule([engine.job("a", data=b'"new"')]) == [Answer.KEPT]
        repair(engine)
    assert engine.state("a") is State.RESERVED
    assert '"old"' in engine.rows("jobs")["a"]


def test_clear_leaves_running_work_alone_that_damage_put_among_what_waits(engine: Engine) -> None:
    (held,) = engine.reserved("a")
    engine.sound = False
    engine.client.zadd(engine.keys.of("scheduled"), {"a": engine.now})
    assert engine.run(inspect.clear(engine.scope)) == 1
    assert engine.rows("entries") == {"a": held.entry}
    assert engine.client.xlen(engine.keys.stream) == 1
    assert list(engine.pending()) == [held.entry]
