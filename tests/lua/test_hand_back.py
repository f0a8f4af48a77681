"""hand_back: what was not started is delivered again, uncounted, under a new entry."""

from __future__ import annotations

from delayq.core.states import State
from delayq.redis.calls import deliver, produce
from delayq.redis.calls.deliver import Acked, Held
from tests.support.engine import OURS, START, Engine


def test_it_joins_the_tail_under_a_new_entry(each_engine: Engine) -> None:
    engine = each_engine
    (held,) = engine.reserved("a", digest="d")
    engine.ready("b")
    engine.run(produce.cancel(engine.scope, "a", running=True, token="t"))
    payload = engine.rows("jobs")
    engine.now += 7
    answer, names = engine.changes(deliver.hand_back(engine.scope, [held]))
    assert (answer, names) == ([True], {"stream", "entries", "meta"})
    assert engine.in_stream() == ["b", "a"]
    fresh, fields = engine.entries()[1]
    assert fields == {"id": "a", "job": payload["a"], "due": str(START), "recoveries": "0", "stop": "1"}
    assert set(engine.rows("cancel")) == {"a"}
    assert engine.rows("entries")["a"] == fresh != held.entry
    assert engine.pending() == {}
    assert engine.state("a") == State.READY
    assert engine.rows("meta")["handed_back_total"] == "1"


def test_what_nobody_held_is_not_counted(engine: Engine) -> None:
    one, two = engine.reserved("a", "b")
    assert engine.run(deliver.hand_back(engine.scope, [one], unheld=True)) == [True]
    assert "handed_back_total" not in engine.rows("meta")
    assert engine.unchanged(deliver.hand_back(engine.scope, [one], unheld=True)) == [False]
    assert engine.unchanged(deliver.hand_back(engine.scope, [], unheld=True)) == []
    engine.run(deliver.hand_back(engine.scope, [two]))
    assert engine.rows("meta")["handed_back_total"] == "1"


def test_the_old_holder_is_fenced(engine: Engine) -> None:
    (held,) = engine.reserved("a")
    engine.run(deliver.hand_back(engine.scope, [held]))
    assert engine.unchanged(deliver.ack(engine.scope, [Acked(held)])) == [False]
    assert engine.unchanged(deliver.hand_back(engine.scope, [held])) == [False]


def test_neither_recoveries_nor_failures_change(engine: Engine) -> None:
    (held,) = engine.reserved("a")
    engine.client.hset(engine.keys.of("recoveries"), "a", 2)
    engine.client.hset(engine.keys.of("errors"), "a", "{}")
    engine.run(deliver.hand_back(engine.scope, [held]))
    assert (engine.rows("recoveries"), engine.rows("errors")) == ({"a": "2"}, {"a": "{}"})
    assert engine.entries()[0][1]["recoveries"] == "2"


def test_a_batch_with_everything(engine: Engine) -> None:
    one, two, three = engine.reserved("a", "b", "c")
    engine.run(deliver.ack(engine.scope, [Acked(two)]))
    asked = [three, two, Held("nobody", "1-1"), one, one]
    assert engine.run(deliver.hand_back(engine.scope, asked)) == [True, False, False, True, False]
    assert engine.in_stream() == ["c", "a"]
    assert engine.pending() == {}


def test_nothing_to_hand_back_changes_nothing(engine: Engine) -> None:
    engine.reserved("a")
    assert engine.unchanged(deliver.hand_back(engine.scope, [])) == []


def test_what_others_hold_stays_theirs(engine: Engine) -> None:
    (mine,) = engine.reserved("a")
    (theirs,) = engine.reserved("b", consumer="dq:other:1:b")
    engine.run(deliver.hand_back(engine.scope, [mine]))
    assert engine.pending() == {theirs.entry: "dq:other:1:b"}


def test_an_entry_that_was_trimmed_away_comes_from_jobs(engine: Engine) -> None:
    (held,) = engine.reserved("a")
    payload = engine.rows("jobs")["a"]
    engine.now += 7
    with engine.damaged():
        engine.client.xtrim(engine.keys.stream, maxlen=0, approximate=False)
        assert engine.run(deliver.hand_back(engine.scope, [held])) == [True]
    ((_, fields),) = engine.entries()
    assert fields == {"id": "a", "job": payload, "due": str(START + 7), "recoveries": "0"}
    assert engine.pending() == {}


def test_a_payload_that_was_lost_comes_from_the_entry(engine: Engine) -> None:
    (held,) = engine.reserved("a")
    payload = engine.rows("jobs")
    with engine.damaged():
        engine.client.hdel(engine.keys.of("jobs"), "a")
        assert engine.run(deliver.hand_back(engine.scope, [held])) == [True]
    assert engine.rows("jobs") == payload


def test_without_either_it_is_left_where_it_is(engine: Engine) -> None:
    (held,) = engine.reserved("a")
    with engine.damaged():
        engine.client.xdel(engine.keys.stream, held.entry)
        engine.client.hdel(engine.keys.of("jobs"), "a")
        assert engine.unchanged(deliver.hand_back(engine.scope, [held])) == [False]
        assert engine.pending() == {held.entry: OURS}
        engine.run(deliver.mend(engine.scope, ["a"]))


def test_a_paused_queue_takes_it_all_the_same(engine: Engine) -> None:
    (held,) = engine.reserved("a")
    engine.client.hset(engine.keys.meta, "paused_until_ms", "0")
    assert engine.run(deliver.hand_back(engine.scope, [held])) == [True]
    assert engine.state("a") == State.READY


def test_without_a_stream_it_makes_none(engine: Engine) -> None:
    """One without a group would be damage of our own; mend finds the job."""
    (held,) = engine.reserved("a")
    with engine.damaged():
        engine.client.delete(engine.keys.stream)
        assert engine.unchanged(deliver.hand_back(engine.scope, [held])) == [False]
        engine.run(deliver.tidy(engine.scope))
        engine.run(deliver.mend(engine.scope, ["a"]))
    assert engine.state("a") == State.READY


def test_no_more_than_a_megabyte_but_one_at_least(engine: Engine) -> None:
    held = engine.reserved("a", "b", data=b'"' + b"x" * 600_000 + b'"')
    assert engine.run(deliver.hand_back(engine.scope, held)) == [True]
    assert engine.run(deliver.hand_back(engine.scope, held[1:])) == [True]
    assert engine.in_stream() == ["a", "b"]


def test_no_more_than_100(engine: Engine) -> None:
    held = engine.reserved(*[f"j{n:03}" for n in range(101)])
    assert engine.run(deliver.hand_back(engine.scope, held)) == [True] * 100
    assert engine.run(deliver.hand_back(engine.scope, held[100:])) == [True]
