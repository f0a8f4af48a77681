"""mend: one place each, a payload for whatever has a place, and no rows for what is gone."""

from __future__ import annotations

import pytest

from delayq.core import envelope as envelopes
from delayq.core import failure as failures
from delayq.core.failure import Failure
from delayq.core.states import State
from delayq.redis.calls import deliver
from delayq.redis.calls.deliver import Acked, Released
from tests.support.engine import HOUR, OURS, Engine


def mend(engine: Engine, *ids: str) -> list[str]:
    return engine.run(deliver.mend(engine.scope, ids))


def failure_of(engine: Engine, job_id: str) -> Failure:
    found = failures.decode(engine.rows("errors")[job_id].encode())
    assert found is not None
    return found


def stub_of(engine: Engine, job_id: str) -> str:
    return envelopes.decode(engine.client.hget(engine.keys.of("jobs"), job_id)).name


def fill(engine: Engine) -> list[str]:
    """A job in every place."""
    engine.failed("f")
    engine.completed("c")
    engine.reserved("r", digest="dr")
    engine.ready("y", digest="dy")
    engine.schedule([engine.job("s", digest="ds")])
    return ["f", "c", "r", "y", "s"]


def test_what_is_in_order_is_fine(each_engine: Engine) -> None:
    names = fill(each_engine)
    assert each_engine.unchanged(deliver.mend(each_engine.scope, names)) == ["fine"] * 5


def test_nothing_to_mend_changes_nothing(engine: Engine) -> None:
    fill(engine)
    assert engine.unchanged(deliver.mend(engine.scope, [])) == []
    assert engine.unchanged(deliver.mend(engine.scope, ["nobody"])) == ["dropped"]


def test_a_payload_without_a_place_is_due_now(engine: Engine) -> None:
    engine.schedule([engine.job("a", digest="d")])
    engine.now += 7
    with engine.damaged():
        engine.client.delete(engine.keys.of("scheduled"))
        assert mend(engine, "a") == ["scheduled"]
    assert engine.scores("scheduled") == {"a": engine.now}
    assert engine.rows("locks") == {"a": "d"}


def test_a_job_that_was_done_does_not_run_again(engine: Engine) -> None:
    engine.completed("a")
    (held,) = engine.reserved("b")
    engine.run(deliver.ack(engine.scope, [Acked(held, HOUR)]))
    with engine.damaged():
        engine.client.delete(engine.keys.of("completed"))
        assert mend(engine, "a", "b") == ["completed", "completed"]
    assert engine.rows("results") == {"a": '"ok"', "b": "null"}


@pytest.mark.parametrize("reader", [OURS, ""], ids=["held", "unread"])
def test_an_entry_that_is_gone_from_the_stream_is_appended(each_engine: Engine, reader: str) -> None:
    engine = each_engine
    engine.ready("a")
    if reader:
        engine.read(reader)
    engine.client.hset(engine.keys.of("recoveries"), "a", 2)
    payload, old = engine.rows("jobs")["a"], engine.held("a").entry
    with engine.damaged():
        engine.client.xdel(engine.keys.stream, old)
        assert mend(engine, "a") == ["appended"]
    ((fresh, fields),) = engine.entries()
    assert fresh != old
    assert fields == {"id": "a", "job": payload, "due": str(engine.now), "recoveries": "2"}
    assert engine.pending() == {}
    assert engine.state("a") == State.READY


def test_a_payload_that_was_lost_comes_from_the_entry(each_engine: Engine) -> None:
    engine = each_engine
    engine.reserved("a")
    engine.ready("b")
    payloads = engine.rows("jobs")
    with engine.damaged():
        engine.client.delete(engine.keys.of("jobs"))
        words, names = engine.changes(deliver.mend(engine.scope, ["a", "b"]))
    assert (words, names) == (["restored", "restored"], {"jobs"})
    assert engine.rows("jobs") == payloads


def test_a_payload_that_is_nowhere_is_a_failed_job(engine: Engine) -> None:
    (held,) = engine.reserved("a", digest="d")
    first = failures.encode(Failure(type="ValueError", message="the first error"))
    engine.run(deliver.release(engine.scope, [Released(held, HOUR, b"", first)]))
    with engine.damaged():
        engine.client.delete(engine.keys.of("jobs"))
        assert mend(engine, "a") == ["lost"]
    assert (engine.scores("failed"), engine.scores("scheduled")) == ({"a": engine.now}, {})
    assert stub_of(engine, "a") == "delayq.lost"
    failure = failure_of(engine, "a")
    assert (failure.type, failure.at_ms) == ("PayloadLost", engine.now)
    assert [past.message for past in failure.history] == ["the first error"]
    assert (engine.rows("unique"), engine.rows("locks")) == ({}, {})


def test_so_is_one_whose_entry_is_gone_as_well(engine: Engine) -> None:
    (held,) = engine.reserved("a", digest="d")
    with engine.damaged():
        engine.client.hdel(engine.keys.of("jobs"), "a")
        engine.client.xdel(engine.keys.stream, held.entry)
        assert mend(engine, "a") == ["lost"]
    assert (engine.state("a"), engine.pending()) == (State.FAILED, {})
    assert engine.rows("locks") == {}


def test_and_one_whose_entry_carries_none(engine: Engine) -> None:
    engine.run(deliver.tidy(engine.scope))
    entry = engine.client.xadd(engine.keys.stream, {"id": "a"}).decode()
    with engine.damaged():
        engine.client.hset(engine.keys.of("entries"), "a", entry)
        engine.read()
        assert mend(engine, "a") == ["lost"]
    assert (engine.entries(), engine.pending()) == ([], {})


def test_a_failed_job_without_its_payload_keeps_its_failure(engine: Engine) -> None:
    engine.failed("a")
    failed_at = engine.scores("failed")
    engine.now += HOUR
    with engine.damaged():
        engine.client.delete(engine.keys.of("jobs"))
        assert mend(engine, "a") == ["lost"]
    assert engine.scores("failed") == failed_at
    assert failure_of(engine, "a").type == "E"
    assert stub_of(engine, "a") == "delayq.lost"


def test_one_without_a_failure_gets_one(engine: Engine) -> None:
    engine.client.zadd(engine.keys.of("failed"), {"a": 1})
    with engine.damaged():
        assert mend(engine, "a") == ["lost"]
    assert failure_of(engine, "a").type == "PayloadLost"


def test_a_completed_job_without_its_payload_keeps_its_result(engine: Engine) -> None:
    engine.completed("a")
    with engine.damaged():
        engine.client.delete(engine.keys.of("jobs"))
        assert mend(engine, "a") == ["lost"]
    assert (engine.state("a"), engine.rows("results")) == (State.COMPLETED, {"a": '"ok"'})
    assert stub_of(engine, "a") == "delayq.lost"


PLACES = ["scheduled", "failed", "completed"]


@pytest.mark.parametrize("extra", PLACES)
@pytest.mark.parametrize("reader", [OURS, ""], ids=["held", "unread"])
def test_of_two_places_the_one_nearest_to_a_worker_wins(engine: Engine, extra: str, reader: str) -> None:
    engine.ready("a")
    if reader:
        engine.read(reader)
    entries = engine.rows("entries")
    with engine.damaged():
        engine.client.zadd(engine.keys.of(extra), {"a": 1})
        assert mend(engine, "a") == ["single"]
    assert (engine.rows("entries"), engine.scores(extra)) == (entries, {})


@pytest.mark.parametrize(("first", "second"), [(0, 1), (0, 2), (1, 2)])
def test_then_scheduled_then_failed(engine: Engine, first: int, second: int) -> None:
    engine.client.hset(engine.keys.of("jobs"), "a", "{}")
    for place in (first, second):
        engine.client.zadd(engine.keys.of(PLACES[place]), {"a": 5})
    with engine.damaged():
        assert mend(engine, "a") == ["single"]
    assert [engine.scores(name) for name in PLACES] == [{"a": 5} if n == first else {} for n in range(3)]


def test_side_rows_of_nobody_are_dropped(engine: Engine) -> None:
    for name in ("recoveries", "errors", "results", "cancel"):
        engine.client.hset(engine.keys.of(name), "ghost", "1")
    engine.client.hset(engine.keys.of("locks"), "ghost", "d")
    engine.client.hset(engine.keys.of("unique"), "d", "ghost")
    with engine.damaged():
        assert mend(engine, "ghost") == ["dropped"]
    assert not list(engine.client.scan_iter())


def test_rows_that_belong_to_another_place_are_dropped(engine: Engine) -> None:
    fill(engine)
    with engine.damaged():
        for name in ("r", "y", "s", "f"):
            engine.client.hset(engine.keys.of("results"), name, "1")
        for name in ("s", "f", "c"):
            engine.client.hset(engine.keys.of("cancel"), name, "1")
        for name in ("f", "c"):
            engine.client.hset(engine.keys.of("locks"), name, f"d{name}")
            engine.client.hset(engine.keys.of("unique"), f"d{name}", name)
        assert mend(engine, "f", "c", "r", "y", "s") == ["fine"] * 5


def test_a_lock_comes_back_from_its_other_half(engine: Engine) -> None:
    fill(engine)
    before = engine.rows("unique")
    with engine.damaged():
        engine.client.delete(engine.keys.of("unique"))
        mend(engine, "f", "c", "r", "y", "s")
    assert engine.rows("unique") == before


def test_a_lock_that_another_took_meanwhile_is_his(engine: Engine) -> None:
    engine.schedule([engine.job("a", digest="d")])
    with engine.damaged():
        engine.client.delete(engine.keys.of("unique"))
        engine.schedule([engine.job("b", digest="d")])
        mend(engine, "a", "b")
    assert (engine.rows("unique"), engine.rows("locks")) == ({"d": "b"}, {"b": "d"})


@pytest.mark.parametrize("entry", ["junk", "1", "-", "1-1-1", "", "1-1"])
def test_an_entry_id_that_is_none_leads_nowhere(engine: Engine, entry: str) -> None:
    engine.schedule([engine.job("a")])
    with engine.damaged():
        engine.client.zrem(engine.keys.of("scheduled"), "a")
        engine.client.hset(engine.keys.of("entries"), "a", entry)
        assert mend(engine, "a") == ["appended"]


def test_a_row_that_leads_to_somebody_elses_entry_takes_nothing_from_him(engine: Engine) -> None:
    (held,) = engine.reserved("a")
    engine.schedule([engine.job("b")])
    with engine.damaged():
        engine.client.zrem(engine.keys.of("scheduled"), "b")
        engine.client.hset(engine.keys.of("entries"), "b", held.entry)
        assert mend(engine, "b", "a") == ["appended", "fine"]
    assert engine.pending() == {held.entry: OURS}


def test_no_more_than_a_megabyte_but_one_at_least(engine: Engine) -> None:
    """Also of what turns out to be fine: it is read to find that out."""
    engine.reserved("a", "b", "c", data=b'"' + b"x" * 600_000 + b'"')
    assert [len(mend(engine, *names)) for names in (("a", "b", "c"), ("c",))] == [2, 1]


def test_without_a_stream_it_makes_none_and_the_job_waits(engine: Engine) -> None:
    engine.reserved("a")
    with engine.damaged():
        engine.client.delete(engine.keys.stream)
        assert mend(engine, "a") == ["scheduled"]
    assert engine.scores("scheduled") == {"a": engine.now}
    assert not engine.client.exists(engine.keys.stream)
