"""batch_note and its kin: a batch counts members, says what is due until it was told, and is kept for a time."""

from __future__ import annotations

import pytest

from delayq.core.followups import Word
from delayq.redis.calls import follow
from delayq.redis.calls.call import Scope
from delayq.redis.calls.follow import KEEP_BATCH_MS, Standing, Told
from delayq.redis.keys import Keys
from tests.support.engine import Engine

ENDED = ("finally", "then", "onward")
NOWHERE = Standing(b"{}", 0, 1, 0, 0, 0, 0, None, None, ())


@pytest.fixture
def place(engine: Engine) -> Scope:
    """A batch of three that is sealed."""
    place = follow.place(engine.scope, "b")
    engine.run(follow.batch_open(place, b"{}", [(f"m{n}", "orders") for n in range(3)]))
    engine.run(follow.batch_note(place, seal=True))
    return place


def note(engine: Engine, place: Scope, *members: tuple[str, Word] | Told, **how: bool) -> Standing:
    standing = engine.run(follow.batch_note(place, [Told(*member) for member in members], **how))
    assert standing is not None
    return standing


def again(member: str, retried: int = 1, spared: int = 1) -> Told:
    """Word of a retry by somebody who knew of one cancel."""
    return Told(member, Word.PENDING, retried, spared)


def counts(standing: Standing) -> tuple[int, int, int, int]:
    return standing.pending, standing.done, standing.failed, standing.skipped


def test_a_note_that_comes_twice_counts_once(engine: Engine, place: Scope) -> None:
    for _ in range(3):
        assert counts(note(engine, place, ("m0", Word.DONE), ("m0", Word.DONE))) == (2, 1, 0, 0)


def test_a_stranger_is_no_member(engine: Engine, place: Scope) -> None:
    assert counts(note(engine, place, ("nobody", Word.DONE), ("nobody", Word.FAILED))) == (3, 0, 0, 0)


def test_a_late_failure_changes_nothing_that_is_done(engine: Engine, place: Scope) -> None:
    note(engine, place, ("m0", Word.DONE))
    assert counts(note(engine, place, ("m0", Word.FAILED), ("m0", Word.SKIPPED))) == (2, 1, 0, 0)


def test_what_is_due_is_said_until_it_was_told(engine: Engine, place: Scope) -> None:
    ended = note(engine, place, *((f"m{n}", Word.DONE) for n in range(3)))
    assert ended.due == ("progress", *ENDED)
    assert note(engine, place).due == ("progress", *ENDED)
    engine.run(follow.batch_told(place, ["progress", "then"], ended))
    assert note(engine, place).due == ("finally", "onward")


def test_progress_that_was_told_late_takes_nothing_back(engine: Engine, place: Scope) -> None:
    early = note(engine, place, ("m0", Word.DONE))
    late = note(engine, place, ("m1", Word.DONE))
    engine.run(follow.batch_told(place, ["progress"], late))
    engine.run(follow.batch_told(place, ["progress"], early))
    assert "progress" not in note(engine, place).due


def test_before_it_is_sealed_it_does_not_finish(engine: Engine) -> None:
    place = follow.place(engine.scope, "b")
    engine.run(follow.batch_open(place, b"{}", [("m0", "orders")]))
    assert note(engine, place, ("m0", Word.DONE)).finished_ms is None
    engine.run(follow.batch_open(place, b"{}", [("m1", "orders")]))
    assert note(engine, place, ("m1", Word.DONE), seal=True).finished_ms == engine.now


def test_members_that_are_known_are_not_added_again(engine: Engine, place: Scope) -> None:
    note(engine, place, ("m0", Word.DONE), ("m1", Word.SKIPPED))
    again = engine.run(follow.batch_open(place, b"", [(f"m{n}", "orders") for n in range(4)]))
    assert (again.added, counts(note(engine, place))) == (1, (2, 1, 0, 1))


def test_one_that_is_sealed_is_not_begun_again(engine: Engine, place: Scope) -> None:
    again = engine.unchanged(follow.batch_open(place, b"{}", [("m0", "orders"), ("other", "orders")]))
    assert (again.answer, again.added, counts(note(engine, place))) == ("sealed", 0, (3, 0, 0, 0))


def test_one_that_is_not_sealed_goes_on_where_it_stopped(engine: Engine) -> None:
    place = follow.place(engine.scope, "b")
    engine.run(follow.batch_open(place, b"{}", [("m0", "orders")]))
    again = engine.run(follow.batch_open(place, b"{}", [("m0", "orders"), ("m1", "orders")]))
    assert (again.answer, again.added) == ("opened", 1)


@pytest.mark.parametrize("allow", [True, False])
def test_a_failure_ends_it_unless_failures_are_allowed(engine: Engine, allow: bool) -> None:
    place = follow.place(engine.scope, "b")
    engine.run(follow.batch_open(place, b"{}", [("m0", "orders"), ("m1", "orders")], allow=allow))
    standing = note(engine, place, ("m0", Word.FAILED), seal=True)
    assert (standing.cancelled_ms is None) == allow
    assert ("cancel" in standing.due) == (not allow)
    standing = note(engine, place, ("m1", Word.DONE))
    assert ("onward" in standing.due, "stopped" in standing.due) == (allow, not allow)
    assert "then" not in standing.due


def test_a_retry_takes_it_up_again(engine: Engine, place: Scope) -> None:
    ended = note(engine, place, ("m0", Word.FAILED), ("m1", Word.SKIPPED), ("m2", Word.DONE))
    engine.run(follow.batch_told(place, ended.due, ended))
    taken_up = note(engine, place, again("m0"), again("m1"))
    assert (counts(taken_up), taken_up.round, taken_up.due) == ((2, 1, 0, 0), 1, ("resumed",))
    assert (taken_up.finished_ms, taken_up.cancelled_ms) == (None, None)
    engine.run(follow.batch_told(place, taken_up.due, taken_up))
    well = note(engine, place, Told("m0", Word.DONE, 1), Told("m1", Word.DONE, 1))
    assert well.due == ("progress", *ENDED)


def test_members_retried_one_by_one_do_not_cancel_each_other(engine: Engine, place: Scope) -> None:
    ended = note(engine, place, *((f"m{n}", Word.FAILED) for n in range(3)))
    engine.run(follow.batch_told(place, ended.due, ended))
    for n in range(3):
        standing = note(engine, place, again(f"m{n}"))
        assert (standing.cancelled_ms, standing.failed) == (None, 2 - n)
        assert {"cancel", "catch"}.isdisjoint(standing.due)
    assert note(engine, place, Told("m0", Word.FAILED, 1)).cancelled_ms is not None


def test_a_failure_after_a_retry_is_caught_again(engine: Engine, place: Scope) -> None:
    first = note(engine, place, ("m0", Word.FAILED))
    engine.run(follow.batch_told(place, first.due, first))
    assert "catch" not in note(engine, place, again("m0")).due
    failed = note(engine, place, Told("m0", Word.FAILED, 1))
    assert ("catch" in failed.due, failed.failed_round) == (True, 1)


def test_a_failure_that_nobody_was_told_of_is_still_to_be_caught_after_a_retry(engine: Engine, place: Scope) -> None:
    standing = note(engine, place, ("m0", Word.FAILED), again("m0"))
    assert ("catch" in standing.due, standing.round, standing.failed_round) == (True, 1, 0)


def test_a_failure_that_was_told_of_late_is_told_of_once(engine: Engine, place: Scope) -> None:
    """Who was to send `catch` of the first round comes back when the second has failed too."""
    first = note(engine, place, ("m0", Word.FAILED))
    engine.run(follow.batch_told(place, first.due, first))
    second = note(engine, place, again("m0"), Told("m0", Word.FAILED, 1))
    engine.run(follow.batch_told(place, first.due, first))
    assert "catch" in note(engine, place).due
    engine.run(follow.batch_told(place, second.due, second))
    assert "catch" not in note(engine, place).due


@pytest.mark.parametrize("word", [Word.DONE, Word.FAILED, Word.SKIPPED])
def test_word_of_what_came_of_a_retry_tells_of_the_retry_too(engine: Engine, place: Scope, word: Word) -> None:
    ended = note(engine, place, ("m0", Word.FAILED), ("m1", Word.DONE), ("m2", Word.DONE))
    engine.run(follow.batch_told(place, ended.due, ended))
    late = note(engine, place, Told("m0", word, 1, 1))
    assert (late.round, "finally" in late.due, counts(late)[0]) == (1, True, 0)
    assert counts(note(engine, place, again("m0"))) == counts(late)


@pytest.mark.parametrize("word", [Word.DONE, Word.FAILED, Word.SKIPPED, Word.PENDING])
def test_word_of_a_time_before_a_retry_says_nothing(engine: Engine, place: Scope, word: Word) -> None:
    note(engine, place, ("m0", Word.FAILED))
    taken_up = note(engine, place, again("m0", 2))
    assert counts(note(engine, place, Told("m0", word, 1, 1), ("m0", word))) == counts(taken_up) == (3, 0, 0, 0)


def test_a_retry_lifts_no_cancel_that_its_caller_did_not_know_of(engine: Engine, place: Scope) -> None:
    note(engine, place, ("m0", Word.FAILED))
    standing = note(engine, place, cancel=True)
    engine.run(follow.batch_told(place, standing.due, standing))
    held = note(engine, place, again("m0", spared=standing.cancels - 1))
    assert (held.cancelled_ms is None, "cancel" in held.due) == (False, True)
    assert note(engine, place, again("m0", 2, standing.cancels)).cancelled_ms is None


def test_who_cancels_looks_again_when_a_retry_came_beside_it(engine: Engine, place: Scope) -> None:
    """He may have passed by the member that the retry put back, and whoever retried may have died."""
    note(engine, place, ("m0", Word.FAILED))
    standing = note(engine, place, cancel=True)
    note(engine, place, again("m0", spared=standing.cancels - 1))
    engine.run(follow.batch_told(place, standing.due, standing))
    still = note(engine, place)
    assert "cancel" in still.due
    engine.run(follow.batch_told(place, still.due, still))
    assert "cancel" not in note(engine, place).due


def test_one_of_another_origin_is_left_alone(engine: Engine, place: Scope) -> None:
    mine = engine.unchanged(follow.batch_open(place, b"{}", [("other", "orders")], origin="outer"))
    assert (mine.answer, counts(note(engine, place))) == ("taken", (3, 0, 0, 0))


def test_what_was_told_before_a_retry_says_nothing_of_what_is_due_after_it(engine: Engine, place: Scope) -> None:
    before = note(engine, place, *((f"m{n}", Word.FAILED) for n in range(3)))
    note(engine, place, again("m0"))
    engine.run(follow.batch_told(place, before.due, before))
    after = note(engine, place, Told("m0", Word.DONE, 1))
    assert {"finally", "stopped", "progress"} <= set(after.due)
    assert "catch" not in after.due


def test_a_cancel_seals_it_so_that_it_can_finish(engine: Engine) -> None:
    place = follow.place(engine.scope, "b")
    engine.run(follow.batch_open(place, b"{}", [("m0", "orders")]))
    assert "cancel" in note(engine, place, cancel=True).due
    assert note(engine, place, ("m0", Word.SKIPPED)).finished_ms == engine.now


def test_what_waits_is_looked_at_again_with_every_cancel(engine: Engine, place: Scope) -> None:
    standing = note(engine, place, cancel=True)
    engine.run(follow.batch_told(place, standing.due, standing))
    assert "cancel" not in note(engine, place).due
    assert "cancel" in note(engine, place, cancel=True).due


def test_a_finished_batch_is_kept_for_a_time(engine: Engine, place: Scope) -> None:
    keys = [Keys("delayq", "batch:b").of(name) for name in ("plan", "pending", "succeeded", "broken", "skipped")]

    def lives() -> set[int]:
        return {engine.client.pttl(key) for key in keys if engine.client.exists(key)}

    assert lives() == {-1}
    note(engine, place, *((f"m{n}", Word.DONE) for n in range(3)))
    assert all(0 < ttl <= KEEP_BATCH_MS for ttl in lives())
    note(engine, place, again("m0"))
    assert all(0 < ttl <= KEEP_BATCH_MS for ttl in lives()), "what is done stays done"


def test_a_look_at_a_finished_batch_does_not_lengthen_its_life(engine: Engine, place: Scope) -> None:
    plan = Keys("delayq", "batch:b").of("plan")
    ended = note(engine, place, *((f"m{n}", Word.DONE) for n in range(3)))
    engine.client.pexpire(plan, 60_000)
    note(engine, place)
    note(engine, place, ("m0", Word.DONE), seal=True)
    engine.run(follow.batch_told(place, ended.due, ended))
    assert 0 < engine.client.pttl(plan) <= 60_000


def test_one_with_failures_is_kept_longer_and_a_retry_keeps_it(engine: Engine, place: Scope) -> None:
    plan = Keys("delayq", "batch:b").of("plan")
    note(engine, place, *((f"m{n}", Word.FAILED) for n in range(3)))
    assert engine.client.pttl(plan) > KEEP_BATCH_MS
    note(engine, place, again("m0"))
    assert engine.client.pttl(plan) == -1


def test_a_batch_that_is_not_there(engine: Engine) -> None:
    place = follow.place(engine.scope, "nobody")
    assert engine.unchanged(follow.batch_note(place, [Told("m0", Word.DONE)])) is None
    assert engine.unchanged(follow.batch_told(place, ["then"], NOWHERE)) is False
    assert engine.unchanged(follow.batch_open(place, b"", [("m0", "orders")])).answer == "unknown"
