"""set_aside: jobs that wait leave their queue for a migration."""

from __future__ import annotations

from delayq.redis.calls import aside
from delayq.redis.calls.aside import Aside
from tests.support.engine import Engine


def kept(engine: Engine) -> list[Aside]:
    command = aside.all_aside(engine.scope)
    return command.parse(engine.client.execute_command(*command.words))


def test_what_waits_leaves_its_queue_with_its_time(each_engine: Engine) -> None:
    engine = each_engine
    due = engine.now + 500
    engine.schedule([engine.job("later", "+500")])
    engine.ready("now", digest="d")

    answers, names = engine.changes(aside.set_aside(engine.scope, "lot", ["later", "now", "nobody"]))

    assert answers == [True, True, False]
    assert names == {"scheduled", "jobs", "stream", "entries", "unique", "locks", "aside"}
    assert engine.key_names() == {"stream", "meta", "aside"}
    assert [(one.lot, one.id, one.due_ms) for one in kept(engine)] == [
        ("lot", "later", due),
        ("lot", "now", engine.now),
    ]
    assert kept(engine)[0].envelope == engine.job("later").envelope


def test_what_runs_failed_or_is_done_is_left_alone(engine: Engine) -> None:
    engine.reserved("running")

    assert engine.unchanged(aside.set_aside(engine.scope, "lot", ["running", "gone"])) == [False, False]


def test_again_it_does_nothing(engine: Engine) -> None:
    engine.schedule([engine.job("a", "+500")])
    engine.run(aside.set_aside(engine.scope, "lot", ["a"]))

    assert engine.unchanged(aside.set_aside(engine.scope, "other", ["a"])) == [False]


def test_two_lots_may_hold_one_id(engine: Engine) -> None:
    """It is free as soon as its job is aside, so another job may have it."""
    for lot in ("first", "second"):
        engine.schedule([engine.job("a", "+500")])
        engine.run(aside.set_aside(engine.scope, lot, ["a"]))

    assert [(one.lot, one.id) for one in kept(engine)] == [("first", "a"), ("second", "a")]
    command = aside.drop(engine.scope, "first", ["a", "nobody"])
    assert engine.client.execute_command(*command.words) == 1
    assert [one.lot for one in kept(engine)] == ["second"]


def test_a_lot_of_bytes_is_moved_in_steps(engine: Engine) -> None:
    large = b'"' + b"x" * 400_000 + b'"'
    engine.schedule([engine.job(name, "+500", data=large) for name in "abcd"])

    steps, rest = [], list("abcd")
    while rest:
        answers = engine.run(aside.set_aside(engine.scope, "lot", rest))
        steps.append(len(answers))
        rest = rest[len(answers) :]

    assert steps == [2, 2]
    assert [one.id for one in kept(engine)] == list("abcd")


def test_a_time_beyond_all_calendars_leaves_as_the_last_of_the_year_9999(engine: Engine) -> None:
    engine.schedule([engine.job("odd"), engine.job("early")])
    for score, job_id in (("+inf", "odd"), ("-inf", "early")):
        engine.client.execute_command("ZADD", engine.keys.of("scheduled"), "XX", score, job_id)
    engine.run(aside.set_aside(engine.scope, "lot", ["odd", "early"]))
    assert [(one.id, one.due_ms) for one in kept(engine)] == [("early", 0), ("odd", 253_402_300_799_999)]
