"""bury: entries that are no jobs of ours are dead-lettered; one whose row was lost is given back to its job."""

from __future__ import annotations

import pytest

from delayq.core.states import State
from delayq.redis.calls import deliver
from delayq.redis.keys import GROUP
from tests.support.engine import OURS, START, Engine

WHY = b'{"type":"Garbage","message":"m"}'


@pytest.fixture
def lair(each_engine: Engine) -> Engine:
    """A queue in order."""
    each_engine.run(deliver.tidy(each_engine.scope))
    return each_engine


def throw(engine: Engine, fields: dict[str | bytes, str | bytes]) -> str:
    """Somebody's XADD."""
    return str(engine.client.xadd(engine.keys.stream, fields).decode())


def bury(engine: Engine, *entries: str) -> list[str]:
    return engine.run(deliver.bury(engine.scope, [(entry, WHY) for entry in entries]))


def test_garbage_is_kept_as_a_failed_job(lair: Engine) -> None:
    engine, entry = lair, throw(lair, {"id": "x", "job": b"\x00\xff"})
    words, names = engine.changes(deliver.bury(engine.scope, [(entry, WHY)]))
    assert (words, names) == (["buried"], {"stream", "failed", "jobs", "errors", "meta"})
    assert engine.scores("failed") == {f"x-{entry}": START}
    assert engine.client.hget(engine.keys.of("jobs"), f"x-{entry}") == b"\x00\xff"
    assert engine.rows("errors") == {f"x-{entry}": WHY.decode()}
    assert (engine.entries(), engine.rows("meta")["failed_total"]) == ([], "1")


def test_without_a_field_of_that_name_all_fields_are_kept(lair: Engine) -> None:
    entry = throw(lair, {"order": "42", "state": "paid"})
    assert bury(lair, entry) == ["buried"]
    assert lair.rows("jobs") == {f"x-{entry}": "order=42\nstate=paid"}


def test_what_somebody_holds_is_buried_too(lair: Engine) -> None:
    engine, entry = lair, throw(lair, {"junk": "x"})
    with engine.damaged():
        engine.read()
        assert engine.pending() == {entry: OURS}
        assert bury(engine, entry) == ["buried"]
    assert engine.pending() == {}


@pytest.mark.parametrize("state", [State.SCHEDULED, State.READY, State.RESERVED, State.FAILED, State.COMPLETED])
def test_a_stray_copy_of_a_job_that_has_a_place_is_dropped(engine: Engine, state: State) -> None:
    engine.put("a", state)
    entry = throw(engine, {"id": "a", "job": "copy"})
    words, names = engine.changes(deliver.bury(engine.scope, [(entry, WHY)]))
    assert (words, names) == (["dropped"], {"stream"})
    assert engine.state("a") == state


def test_an_entry_whose_row_was_lost_is_given_back_with_its_lease(lair: Engine) -> None:
    engine = lair
    (held,) = engine.reserved("a")
    with engine.damaged():
        engine.client.delete(engine.keys.of("entries"))
        words, names = engine.changes(deliver.bury(engine.scope, [(held.entry, WHY)]))
    assert (words, names) == (["adopted"], {"entries"})
    assert engine.pending() == {held.entry: OURS}
    assert engine.run(deliver.ack(engine.scope, [deliver.Acked(held)])) == [True], "its worker never noticed"


def test_also_on_a_full_server(engine: Engine) -> None:
    (held,) = engine.reserved("a")
    with engine.damaged(), engine.full():
        engine.client.delete(engine.keys.of("entries"))
        assert bury(engine, held.entry) == ["adopted"]


def test_of_two_such_entries_only_one_is(engine: Engine) -> None:
    (held,) = engine.reserved("a")
    copy = throw(engine, {"id": "a", "job": "copy"})
    with engine.damaged():
        engine.client.delete(engine.keys.of("entries"))
        assert bury(engine, held.entry, copy) == ["adopted", "dropped"]


def test_a_jobs_own_entry_is_left_alone(engine: Engine) -> None:
    (held,) = engine.reserved("a")
    engine.ready("b")
    asked = [(held.entry, WHY), (engine.held("b").entry, WHY), ("1-1", WHY)]
    assert engine.unchanged(deliver.bury(engine.scope, asked)) == ["left", "left", "left"]


def test_nothing_to_bury_changes_nothing(engine: Engine) -> None:
    engine.ready("a")
    assert engine.unchanged(deliver.bury(engine.scope, [])) == []


def test_no_more_than_a_megabyte_but_one_at_least(engine: Engine) -> None:
    engine.run(deliver.tidy(engine.scope))
    entries = [throw(engine, {"junk": "x" * size}) for size in (1_500_000, 600_000, 600_000, 10)]
    with engine.damaged():
        answers = []
        while entries:
            answers.append(bury(engine, *entries))
            entries = entries[len(answers[-1]) :]
    assert [len(answer) for answer in answers] == [1, 1, 2]


def test_after_it_the_queue_is_in_order(lair: Engine) -> None:
    engine = lair
    engine.ready("a")
    entries = [throw(engine, {"junk": str(n)}) for n in range(40)]
    with engine.damaged():
        engine.client.xreadgroup(GROUP, OURS, {engine.keys.stream: ">"}, count=20)
        assert bury(engine, *entries) == ["buried"] * 40
    assert engine.in_stream() == ["a"]
