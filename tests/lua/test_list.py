"""list: the jobs in one state, page by page, in their order."""

from __future__ import annotations

from itertools import chain

import pytest

from delayq.core.states import State
from delayq.core.views import Page
from delayq.redis.calls import deliver, inspect
from delayq.redis.calls.deliver import Acked
from delayq.redis.keys import GROUP
from tests.support.engine import HOUR, START, Engine


def page(engine: Engine, state: State, cursor: str = "", limit: int = 500) -> Page:
    return engine.unchanged(inspect.list_jobs(engine.scope, state, cursor, limit))


def walk(engine: Engine, state: State, limit: int) -> list[list[str]]:
    """The ids of all pages, up to the empty cursor."""
    pages, cursor = [], ""
    while True:
        found = page(engine, state, cursor, limit)
        pages.append([job.id for job in found.jobs])
        cursor = found.cursor
        if not cursor:
            return pages


def test_each_state_lists_its_own(each_engine: Engine) -> None:
    engine = each_engine
    engine.failed("f")
    engine.completed("c")
    engine.reserved("r")
    engine.ready("y")
    engine.schedule([engine.job("s")])
    found = {str(state): page(engine, state) for state in State if state is not State.ABSENT}
    assert {state: [job.id for job in answer.jobs] for state, answer in found.items()} == {
        "scheduled": ["s"], "ready": ["y"], "reserved": ["r"], "failed": ["f"], "completed": ["c"],
    }  # fmt: skip
    jobs = {state: answer.jobs[0] for state, answer in found.items()}
    assert [jobs[name].due_ms for name in ("scheduled", "ready", "reserved")] == [START + HOUR, START, START]
    assert (jobs["failed"].failed_ms, jobs["completed"].forget_ms) == (START, START + HOUR)
    assert all(job.raw.decode() == engine.rows("jobs")[job.id] for job in jobs.values())


@pytest.mark.parametrize("state", [state for state in State if state is not State.ABSENT])
def test_an_empty_queue(engine: Engine, state: State) -> None:
    assert page(engine, state) == Page((), "")


def test_pages_of_a_set_in_its_order(each_engine: Engine) -> None:
    names = [f"j{n:02}" for n in range(50)]
    each_engine.schedule([each_engine.job(name, "+5") for name in reversed(names)])
    pages = walk(each_engine, State.SCHEDULED, 20)
    assert [len(some) for some in pages] == [20, 20, 10]
    assert [*chain(*pages)] == names


@pytest.mark.parametrize("state", [State.READY, State.RESERVED])
def test_pages_of_the_stream_in_its_order(each_engine: Engine, state: State) -> None:
    names = [f"j{n:02}" for n in range(50)]
    each_engine.ready(*names)
    if state is State.RESERVED:
        each_engine.read()
    pages = walk(each_engine, state, 20)
    assert [len(some) for some in pages] == [20, 20, 10]
    assert [*chain(*pages)] == names


def test_ready_begins_where_reserved_ends(engine: Engine) -> None:
    engine.reserved("a", "b")
    engine.ready("c", "d")
    assert (walk(engine, State.RESERVED, 9), walk(engine, State.READY, 9)) == ([["a", "b"]], [["c", "d"]])


@pytest.mark.parametrize("gone", ["b", "B", "~", "b0"])
def test_a_cursor_whose_job_is_gone_goes_on_behind_its_place(engine: Engine, gone: str) -> None:
    names = sorted(["!", "A", "B", "Z", "a", "b", "b0", "c", "z", "~"])
    engine.schedule([engine.job(name, "+5") for name in names])
    cursor = page(engine, State.SCHEDULED, "", names.index(gone) + 1).cursor
    engine.client.zrem(engine.keys.of("scheduled"), gone)
    engine.client.hdel(engine.keys.of("jobs"), gone)
    assert [job.id for job in page(engine, State.SCHEDULED, cursor).jobs] == names[names.index(gone) + 1 :]


def test_a_cursor_whose_job_moved_goes_on_behind_its_old_place(engine: Engine) -> None:
    engine.schedule([engine.job(name, f"+{n}") for n, name in enumerate("abcd", start=5)])
    cursor = page(engine, State.SCHEDULED, "", 2).cursor
    engine.client.zadd(engine.keys.of("scheduled"), {"b": 1})
    assert [job.id for job in page(engine, State.SCHEDULED, cursor).jobs] == ["c", "d"]


def test_ids_with_strange_characters_are_cursors_too(engine: Engine) -> None:
    names = sorted(['"', "%s", "'", "(", "[x", "a b"[0], "{1}", "|"])
    engine.schedule([engine.job(name, "+5") for name in names])
    assert walk(engine, State.SCHEDULED, 1) == [[name] for name in names] + [[]]


def test_a_cursor_of_ready_jobs_read_meanwhile_goes_on_with_what_is_ready(engine: Engine) -> None:
    engine.ready("a", "b", "c", "d")
    cursor = page(engine, State.READY, "", 1).cursor
    engine.read(count=2)
    assert [job.id for job in page(engine, State.READY, cursor).jobs] == ["c", "d"]


def test_a_job_whose_payload_is_lost_is_listed_without_it(engine: Engine) -> None:
    engine.schedule([engine.job("a")])
    with engine.damaged():
        engine.client.delete(engine.keys.of("jobs"))
        assert [(job.id, job.raw) for job in page(engine, State.SCHEDULED).jobs] == [("a", b"")]
        engine.client.flushall()


def test_garbage_and_settled_work_are_passed_by(engine: Engine) -> None:
    held = engine.reserved("a", "b")
    with engine.damaged():
        engine.client.xadd(engine.keys.stream, {"junk": "x"})
        engine.client.xadd(engine.keys.stream, {"id": "b", "job": "copy"})
        engine.ready("c")
        engine.run(deliver.ack(engine.scope, [Acked(held[0])]))
        assert (walk(engine, State.RESERVED, 9), walk(engine, State.READY, 9)) == ([["b"]], [["c"]])
        engine.client.flushall()


@pytest.mark.parametrize("damage", ["no group", "set back"])
def test_without_a_group_to_trust_everything_is_reserved(each_engine: Engine, damage: str) -> None:
    engine = each_engine
    engine.reserved("a")
    engine.run(deliver.tidy(engine.scope))
    engine.ready("b")
    engine.client.xgroup_destroy(engine.keys.stream, GROUP)
    if damage == "set back":
        engine.client.xgroup_create(engine.keys.stream, GROUP, "0")
    assert (walk(engine, State.READY, 9), walk(engine, State.RESERVED, 9)) == ([[]], [["a", "b"]])


@pytest.mark.parametrize("state", [State.SCHEDULED, State.READY, State.RESERVED])
def test_a_page_is_a_megabyte_but_one_job_at_least(engine: Engine, state: State) -> None:
    sizes = [1_500_000, 600_000, 600_000, 10, 10]
    when = "+5" if state is State.SCHEDULED else "+0"
    for n, size in enumerate(sizes):
        engine.schedule([engine.job(f"j{n}", when, data=b'"' + b"x" * size + b'"')])
    if state is State.RESERVED:
        engine.read()
    assert [some for some in walk(engine, state, 500) if some] == [["j0"], ["j1", "j2"], ["j3", "j4"]]


def test_much_garbage_makes_short_pages_and_no_end(engine: Engine) -> None:
    engine.run(deliver.tidy(engine.scope))
    with engine.damaged():
        for _ in range(4):
            engine.client.xadd(engine.keys.stream, {"junk": "x" * 600_000})
        engine.ready("a")
        assert [*chain(*walk(engine, State.READY, 9))] == ["a"]
        assert len(walk(engine, State.READY, 9)) > 1
        engine.client.flushall()
