"""unsettled: which delivered entries are no longer pending, and what became of them."""

from __future__ import annotations

import pytest

from delayq.redis.calls import deliver
from delayq.redis.calls.deliver import Unsettled, UnsettledPage
from delayq.redis.keys import GROUP
from tests.support.engine import OURS, PLAIN, Engine

OTHER = "dq:other:1:b"


def page(engine: Engine, after: str = "-", marks: str = "", *, everything: bool = False) -> UnsettledPage:
    return engine.run(deliver.unsettled(engine.scope, after, marks, everything=everything))


def verdicts(engine: Engine, *, everything: bool = False) -> dict[str, str]:
    return {row.id: row.verdict for row in page(engine, everything=everything).entries}


def xack(engine: Engine, *ids: str) -> None:
    for job_id in ids:
        assert engine.client.xack(engine.keys.stream, GROUP, engine.held(job_id).entry) == 1


def test_work_in_progress_is_nobodys_business(each_engine: Engine) -> None:
    engine = each_engine
    engine.reserved("a", consumer=PLAIN)
    engine.reserved("b")
    engine.ready("c")
    for everything in (False, True):
        assert engine.unchanged(deliver.unsettled(engine.scope, "-", "", everything=everything)) == UnsettledPage(
            "", "|", ()
        )


def test_a_plain_consumers_acknowledgement(each_engine: Engine) -> None:
    engine = each_engine
    one, two = engine.reserved("a", "b", consumer=PLAIN)
    xack(engine, "b")
    assert engine.unchanged(deliver.unsettled(engine.scope, "-", "", everything=False)).entries == (
        Unsettled(two.entry, "b", "acked"),
    )
    assert engine.pending() == {one.entry: PLAIN}


def test_among_our_own_nobody_only_acknowledges(engine: Engine) -> None:
    engine.reserved("a")
    xack(engine, "a")
    assert verdicts(engine) == {"a": "again"}


def test_a_deleted_consumer_of_ours_is_delivered_again(each_engine: Engine) -> None:
    engine = each_engine
    engine.reserved("a")
    engine.reserved("p", consumer=PLAIN)
    page(engine)
    engine.client.xgroup_delconsumer(engine.keys.stream, GROUP, OURS)
    answer, names = engine.changes(deliver.unsettled(engine.scope, "-", "", everything=False))
    assert [(row.id, row.verdict) for row in answer.entries] == [("a", "again")]
    assert (names, engine.rows("meta")["vanished"].split()) == ({"meta"}, [OURS])
    assert "consumers" not in engine.rows("meta") or engine.rows("meta")["consumers"] == ""


def test_even_one_that_no_pass_has_seen_before(engine: Engine) -> None:
    """It was written down when it came, before it read: see renew."""
    engine.reserved("p", consumer=PLAIN)
    engine.reserved("a")
    engine.client.xgroup_delconsumer(engine.keys.stream, GROUP, OURS)
    assert verdicts(engine) == {"a": "again"}


def test_once_one_has_vanished_an_acknowledgement_is_in_doubt(engine: Engine) -> None:
    engine.reserved("p", consumer=PLAIN)
    engine.reserved("a")
    xack(engine, "p")
    engine.client.xgroup_delconsumer(engine.keys.stream, GROUP, OURS)
    assert verdicts(engine) == {"p": "again", "a": "again"}


def test_after_a_pass_that_found_nothing_it_is_believed_again(engine: Engine) -> None:
    engine.reserved("p", "q", consumer=PLAIN)
    held = engine.reserved("a")
    engine.client.xgroup_delconsumer(engine.keys.stream, GROUP, OURS)
    assert verdicts(engine) == {"a": "again"}
    assert "vanished" in engine.rows("meta"), "the pass that finds is not the pass that forgives"
    engine.run(deliver.hand_back(engine.scope, held))
    assert page(engine).entries == ()
    assert "vanished" not in engine.rows("meta")
    xack(engine, "q")
    assert verdicts(engine) == {"q": "acked"}


def test_a_consumer_that_comes_is_written_down(engine: Engine) -> None:
    engine.ready("a")
    engine.client.xreadgroup(GROUP, OTHER, {engine.keys.stream: ">"})
    _, names = engine.changes(deliver.unsettled(engine.scope, "-", "", everything=False))
    assert (names, engine.rows("meta")["consumers"]) == ({"meta"}, OTHER)


@pytest.mark.parametrize("name", ["dq:host", "dq:host:x:a", "dq::1:a", "Dq:h:1:a", "dq:h:1:a b", "worker-1", "dq:h:1:"])
def test_every_other_form_of_name_is_plain(engine: Engine, name: str) -> None:
    engine.ready("a")
    engine.client.xreadgroup(GROUP, name, {engine.keys.stream: ">"})
    xack(engine, "a")
    assert verdicts(engine) == {"a": "acked"}


def test_rows_of_deleted_entries_hide_no_work(each_engine: Engine) -> None:
    """XPENDING of a page's range counts them too; what it did not show is asked for one by one."""
    engine = each_engine
    held = engine.reserved(*[f"j{n:02}" for n in range(60)], consumer=PLAIN)
    with engine.damaged():
        engine.client.xdel(engine.keys.stream, *[one.entry for one in held[5:35]])
        assert verdicts(engine) == {}
        assert verdicts(engine, everything=True) == {}
        engine.client.flushall()


@pytest.mark.parametrize("everything", [False, True])
def test_garbage_that_was_delivered_and_let_go(engine: Engine, everything: bool) -> None:
    engine.run(deliver.tidy(engine.scope))
    with engine.damaged():
        entry = engine.client.xadd(engine.keys.stream, {"junk": "x"}).decode()
        engine.read()
        engine.client.xack(engine.keys.stream, GROUP, entry)
        assert page(engine, everything=everything).entries == (Unsettled(entry, "", "garbage"),)
        engine.client.flushall()


@pytest.mark.parametrize("held", [False, True], ids=["unread", "held"])
def test_garbage_elsewhere_is_looked_for_only_when_the_sums_differ(engine: Engine, held: bool) -> None:
    engine.ready("a")
    with engine.damaged():
        entry = engine.client.xadd(engine.keys.stream, {"id": "a", "job": "copy"}).decode()
        if held:
            engine.read()
        assert page(engine).entries == ()
        assert page(engine, everything=True).entries == (Unsettled(entry, "a", "garbage"),)
        engine.client.flushall()


def test_pages_and_the_marks_between_them(engine: Engine) -> None:
    engine.reserved(*[f"j{n:03}" for n in range(520)], consumer=PLAIN)
    engine.reserved("ours")
    engine.client.xgroup_delconsumer(engine.keys.stream, GROUP, OURS)
    first = page(engine)
    assert (first.entries, first.after) == ((), engine.held("j499").entry)
    second = page(engine, first.after, first.marks)
    assert ([row.id for row in second.entries], second.after) == (["ours"], "")
    engine.run(deliver.hand_back(engine.scope, [engine.held("ours")]))
    first = page(engine)
    assert "vanished" in engine.rows("meta"), "not before the pass is over"
    assert page(engine, first.after, first.marks).entries == ()
    assert "vanished" not in engine.rows("meta")


def test_a_pass_that_began_before_a_consumer_vanished_forgives_nothing(engine: Engine) -> None:
    engine.reserved(*[f"j{n:03}" for n in range(520)], consumer=PLAIN)
    engine.run(deliver.renew(engine.scope, OURS, []))
    first = page(engine)
    engine.client.xgroup_delconsumer(engine.keys.stream, GROUP, OURS)
    second = page(engine, first.after, first.marks)
    assert (second.after, second.entries) == ("", ())
    assert "vanished" in engine.rows("meta")


def test_a_page_is_a_megabyte_but_one_entry_at_least(engine: Engine) -> None:
    engine.reserved("a", "b", data=b'"' + b"x" * 600_000 + b'"')
    engine.reserved("c", data=b'"' + b"x" * 1_500_000 + b'"')
    ends = []
    after, marks = "-", ""
    while after:
        answer = page(engine, after, marks)
        after, marks = answer.after, answer.marks
        ends.append(after)
    assert ends[:2] == [engine.held("b").entry, engine.held("c").entry]
    assert ends[-1] == ""


@pytest.mark.parametrize("damage", ["no group", "no stream"])
def test_without_group_or_stream_there_is_nothing_to_say(engine: Engine, damage: str) -> None:
    engine.reserved("a")
    with engine.damaged():
        if damage == "no group":
            engine.client.xgroup_destroy(engine.keys.stream, GROUP)
        else:
            engine.client.delete(engine.keys.stream)
        assert engine.unchanged(deliver.unsettled(engine.scope, "-", "", everything=True)) == UnsettledPage("", "", ())
        engine.client.flushall()


def test_a_consumer_that_left_in_order_has_not_vanished(engine: Engine) -> None:
    engine.reserved("p", consumer=PLAIN)
    (held,) = engine.reserved("a")
    page(engine)
    engine.run(deliver.ack(engine.scope, [deliver.Acked(held)]))
    assert engine.run(deliver.retire(engine.scope, OURS, 0))
    xack(engine, "p")
    assert verdicts(engine) == {"p": "acked"}
