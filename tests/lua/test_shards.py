"""What a shard does with the layout it is told: adopts a newer one, refuses an older one, and looks without making."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from delayq.core.debounce import Quiet
from delayq.core.followups import End, Note, Send, Todo, Word, decode_todo
from delayq.core.shards import PLAIN, Layout
from delayq.core.spec import Prepared
from delayq.core.states import Answer, OnConflict
from delayq.redis.calls import deliver, follow, inspect, produce
from delayq.redis.calls.call import Scope
from delayq.redis.calls.deliver import Acked
from delayq.redis.calls.follow import Finished
from delayq.redis.calls.inspect import LaidOut
from delayq.redis.calls.produce import Scheduled
from tests.support.engine import START, Engine, envelope

OLD, NEW = Layout(4, START, (1,)), Layout(2, START + 1, (4, 1))
NO_WORD = LaidOut(PLAIN, "", "")
CONFLICTS = list(OnConflict)


def scope(engine: Engine, layout: Layout, *, asks: bool = False) -> Scope:
    return msgspec.structs.replace(engine.scope, layout=layout, asks=asks)


def schedule(
    engine: Engine, layout: Layout, job: Prepared, on_conflict: OnConflict, *, asks: bool = False
) -> Scheduled:
    return engine.run(produce.schedule(scope(engine, layout, asks=asks), [job], on_conflict, "t"))


def debounced(engine: Engine, layout: Layout, job_id: str, *, asks: bool = False) -> Scheduled:
    quiet = Quiet(1_000, 0)
    job = Prepared(job_id, envelope(job_id, unique="b.start"), "+0", "b", "order.close", "orders", False, quiet)
    return engine.run(produce.debounce(scope(engine, layout, asks=asks), job, quiet, job_id))


def laid_out(engine: Engine) -> str:
    return engine.rows("meta").get("shards", "")


Make = Callable[[Engine, Layout], Scheduled]


def by(on_conflict: OnConflict) -> Make:
    return lambda engine, layout: schedule(engine, layout, engine.job("a", "+5000"), on_conflict)


MAKERS: dict[str, Make] = {
    **{word.value: by(word) for word in CONFLICTS},
    "debounce": lambda engine, layout: debounced(engine, layout, "a"),
}


@pytest.mark.parametrize("maker", MAKERS)
def test_a_shard_that_knows_a_newer_layout_does_nothing_and_tells_it(engine: Engine, maker: str) -> None:
    engine.run(inspect.lay_out(engine.scope, NEW, NO_WORD))
    before = engine.key_names()
    for layout in (PLAIN, OLD):
        assert MAKERS[maker](engine, layout) == Scheduled([], False, NEW)
    assert engine.key_names() == before
    assert laid_out(engine) == str(NEW)


@pytest.mark.parametrize("maker", MAKERS)
def test_a_newer_layout_is_taken_from_whoever_brings_it(engine: Engine, maker: str) -> None:
    engine.run(inspect.lay_out(engine.scope, OLD, NO_WORD))
    scheduled = MAKERS[maker](engine, NEW)
    assert [ref.outcome for ref in scheduled.refs] == [Answer.CREATED]
    assert laid_out(engine) == str(NEW)


def test_an_answer_that_was_given_is_given_again_whatever_the_layout_is_by_now(engine: Engine) -> None:
    job = engine.job("a", "+0")  # due soon, so its call carries a token
    first = schedule(engine, OLD, job, OnConflict.KEEP)
    engine.run(inspect.lay_out(engine.scope, NEW, NO_WORD))
    assert schedule(engine, OLD, job, OnConflict.KEEP) == first
    assert schedule(engine, NEW, job, OnConflict.KEEP, asks=True) == first


@pytest.mark.parametrize("on_conflict", CONFLICTS)
def test_who_asks_for_a_job_makes_none_and_leaves_the_layout(engine: Engine, on_conflict: OnConflict) -> None:
    job = engine.job("a", "+5000", digest="d")
    asked = schedule(engine, NEW, job, on_conflict, asks=True)
    assert [ref.outcome for ref in asked.refs] == [Answer.UNKNOWN]
    assert engine.rows("jobs") == engine.rows("unique") == {}
    assert engine.scores("scheduled") == {}
    assert laid_out(engine) == str(NEW)
    assert schedule(engine, OLD, job, on_conflict).moved == NEW  # so nobody makes it here any more by an older one


@pytest.mark.parametrize(
    ("on_conflict", "answer"),
    [
        (OnConflict.KEEP, Answer.KEPT),
        (OnConflict.ERROR, Answer.CONFLICT),
        (OnConflict.REPLACE, Answer.REPLACED),
        (OnConflict.POSTPONE, Answer.POSTPONED),
    ],
)
def test_who_asks_for_a_job_that_is_there_gets_what_they_asked_for(
    engine: Engine, on_conflict: OnConflict, answer: Answer
) -> None:
    engine.schedule([engine.job("a", "+5000")])
    asked = schedule(engine, NEW, engine.job("a", "+9000"), on_conflict, asks=True)
    assert [(ref.id, ref.outcome) for ref in asked.refs] == [("a", answer)]
    assert engine.scores("scheduled") == {"a": START + (9_000 if answer in ("replaced", "postponed") else 5_000)}


@pytest.mark.parametrize("on_conflict", [OnConflict.REPLACE, OnConflict.POSTPONE])
def test_a_change_where_a_job_lay_is_answered_again_after_a_lost_reply(engine: Engine, on_conflict: OnConflict) -> None:
    engine.schedule([engine.job("a", "+5000"), engine.job("other", "+5000")])
    call = produce.schedule(scope(engine, NEW, asks=True), [engine.job("a", "+0")], on_conflict, "t")
    first = engine.run(call)
    engine.run(deliver.promote(engine.scope))
    assert engine.unchanged(call) == first  # ready
    held = engine.read()
    assert engine.unchanged(call) == first  # reserved
    engine.run(deliver.ack(engine.scope, [Acked(held[0])]))
    assert engine.unchanged(call) == first  # gone


def test_jobs_that_were_not_there_are_answered_anew_and_those_beside_them_again(engine: Engine) -> None:
    engine.schedule([engine.job("a", "+5000")])
    jobs = [engine.job("a", "+0"), engine.job("b", "+0")]
    call = produce.schedule(scope(engine, NEW, asks=True), jobs, OnConflict.REPLACE, "t")
    first = engine.run(call)
    assert [ref.outcome for ref in first.refs] == [Answer.REPLACED, Answer.UNKNOWN]
    assert engine.unchanged(call) == first
    alone = produce.schedule(scope(engine, NEW), jobs[1:], OnConflict.REPLACE, "u")
    assert [ref.outcome for ref in engine.run(alone).refs] == [Answer.CREATED]


def test_nothing_found_keeps_no_answer_so_that_the_same_token_may_make_the_job_here(engine: Engine) -> None:
    job = engine.job("a", "+0")
    for asks, answer in ((True, Answer.UNKNOWN), (False, Answer.CREATED)):
        [ref] = schedule(engine, NEW, job, OnConflict.REPLACE, asks=asks).refs
        assert ref.outcome is answer


def test_who_asks_by_a_unique_key_finds_its_owner(engine: Engine) -> None:
    engine.schedule([engine.job("a", "+5000", digest="d")])
    asked = schedule(engine, NEW, engine.job("b", "+5000", digest="d"), OnConflict.KEEP, asks=True)
    assert [(ref.id, ref.outcome) for ref in asked.refs] == [("a", Answer.KEPT)]


@pytest.mark.parametrize("place", ["failed", "completed", "reserved", "ready"])
def test_a_job_in_any_place_is_found(engine: Engine, place: str) -> None:
    getattr(engine, place)("a")
    [ref] = schedule(engine, NEW, engine.job("a", "+5000"), OnConflict.KEEP, asks=True).refs
    assert (ref.outcome, ref.state) == (Answer.KEPT, place)


def test_a_debounced_job_that_waits_where_its_key_lay_is_replaced_there(engine: Engine) -> None:
    assert debounced(engine, NEW, "none", asks=True).refs[0].outcome is Answer.UNKNOWN
    assert engine.rows("jobs") == {}
    debounced(engine, NEW, "early")
    [ref] = debounced(engine, NEW, "late", asks=True).refs
    assert (ref.outcome, ref.instead_of) == (Answer.DEBOUNCED, "early")
    assert list(engine.rows("jobs")) == ["late"]


# -- lay_out ---------------------------------------------------------------------------------------------------------


def test_a_shard_that_joins_takes_lease_and_pause_and_an_older_layout_changes_nothing(engine: Engine) -> None:
    joining = LaidOut(PLAIN, "5000", "0")
    assert engine.run(inspect.lay_out(engine.scope, OLD, joining)) == LaidOut(OLD, "5000", "0")
    assert engine.run(inspect.lay_out(engine.scope, NEW, NO_WORD)) == LaidOut(NEW, "5000", "0")
    assert engine.unchanged(inspect.lay_out(engine.scope, OLD, LaidOut(PLAIN, "1", ""))) == LaidOut(NEW, "5000", "0")
    newer = Layout(3, START + 2)
    assert engine.run(inspect.lay_out(engine.scope, newer, LaidOut(PLAIN, "700", ""))) == LaidOut(newer, "700", "")


@pytest.mark.parametrize("other", [LaidOut(OLD, "30000", ""), LaidOut(PLAIN, "1", ""), LaidOut(PLAIN, "30000", "0")])
def test_the_first_shard_takes_a_change_only_in_the_place_of_what_was_seen(engine: Engine, other: LaidOut) -> None:
    engine.run(inspect.configure(engine.scope, None))
    seen = LaidOut(PLAIN, "30000", "")
    assert engine.unchanged(inspect.lay_out(engine.scope, NEW, other, instead=True)) == seen
    assert engine.run(inspect.lay_out(engine.scope, NEW, seen, instead=True)).layout == NEW


# -- what follows ----------------------------------------------------------------------------------------------------


def test_what_follows_in_a_queue_that_was_sharded_is_left_to_the_relay(engine: Engine) -> None:
    engine.reserved("held")
    engine.run(inspect.lay_out(engine.scope, OLD, NO_WORD))
    links = [Send("orders", f'n"{n}', msgspec.Raw(envelope("next")), 500 * n) for n in range(2)]
    todo: Todo = [Note("b", [("held", Word.DONE)]), *links]
    assert engine.run(follow.finish(engine.scope, [Finished(engine.held("held"), End.DONE, todo)])) == [True]
    assert engine.scores("scheduled") == {}
    [(_, fields)] = engine.client.xrange(engine.keys.of("outbox"))
    assert decode_todo(fields[b"todo"]) == todo
