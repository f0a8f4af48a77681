"""Time: the server decides what now is, delays are added there, and no millisecond is lost up to 2^53 - 1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from redis import ResponseError

from delayq.core.envelope import fingerprint
from delayq.core.states import OnConflict, State
from delayq.redis.calls import deliver, inspect, produce
from delayq.redis.calls.call import Scope
from delayq.redis.calls.deliver import Acked, Failed, Released
from delayq.redis.keys import GROUP
from tests.support.engine import HOUR, START, Engine, envelope

LAST = 9_007_199_254_740_991


def real(engine: Engine) -> Scope:
    """Without a virtual clock: what every client sends."""
    return Scope(engine.options, engine.queue)


def server_ms(engine: Engine) -> int:
    seconds, micros = engine.client.time()
    return int(seconds * 1000 + micros // 1000)


def score(engine: Engine, name: str) -> int:
    (value,) = engine.scores(name).values()
    return value


def retry(engine: Engine) -> object:
    engine.failed("a")
    raw = engine.client.hget(engine.keys.of("jobs"), "a")
    return engine.run(produce.retry(real(engine), "a", fingerprint(raw), envelope("a"), ""))


def held(engine: Engine) -> deliver.Held:
    return engine.reserved("a")[0]


def scheduling(engine: Engine, on_conflict: OnConflict) -> object:
    return engine.run(produce.schedule(real(engine), [engine.job("a", f"+{HOUR}")], on_conflict, ""))


def rescheduling(engine: Engine) -> object:
    engine.schedule([engine.job("a")])
    return engine.run(produce.reschedule(real(engine), "a", f"+{HOUR}"))


def burying(engine: Engine) -> object:
    entry = engine.client.xadd(engine.keys.stream, {"junk": "x"}).decode()
    engine.client.xgroup_create(engine.keys.stream, GROUP, "0")
    return engine.run(deliver.bury(real(engine), [(entry, b"{}")]))


def later(engine: Engine) -> object:
    engine.ready("before")
    call = produce.later(real(engine), [engine.job("a", f"+{HOUR}")], OnConflict.KEEP)
    assert call is not None
    return engine.run(call)


def mending(engine: Engine) -> object:
    engine.client.hset(engine.keys.of("jobs"), "a", "{}")
    return engine.run(deliver.mend(real(engine), ["a"]))


# What is done, where the time can be read, and how far from the server's now it should lie.
BY_THE_SERVER: dict[str, tuple[Callable[[Engine], object], Callable[[Engine], int], int]] = {
    "schedule": (lambda e: scheduling(e, OnConflict.KEEP), lambda e: score(e, "scheduled"), HOUR),
    "later": (later, lambda e: score(e, "scheduled"), HOUR),
    "replace": (lambda e: scheduling(e, OnConflict.REPLACE), lambda e: score(e, "scheduled"), HOUR),
    "reschedule": (rescheduling, lambda e: score(e, "scheduled"), HOUR),
    "release": (
        lambda e: e.run(deliver.release(real(e), [Released(held(e), HOUR)])), lambda e: score(e, "scheduled"), HOUR
    ),
    "retry": (retry, lambda e: score(e, "scheduled"), 0),
    "fail": (lambda e: e.run(deliver.fail(real(e), [Failed(held(e), b"", b"")])), lambda e: score(e, "failed"), 0),
    "ack": (lambda e: e.run(deliver.ack(real(e), [Acked(held(e), HOUR)])), lambda e: score(e, "completed"), HOUR),
    "pause": (lambda e: e.run(inspect.pause(real(e), HOUR)), lambda e: int(e.rows("meta")["paused_until_ms"]), HOUR),
    "promote": (lambda e: e.run(deliver.promote(real(e))), lambda e: int(e.rows("meta")["mover_tick"]), 0),
    "cancel": (
        lambda e: (held(e), e.run(produce.cancel(real(e), "a", running=True, token=""))),
        lambda e: int(e.rows("cancel")["a"]),
        0,
    ),
    "bury": (burying, lambda e: score(e, "failed"), 0),
    "mend": (mending, lambda e: score(e, "scheduled"), 0),
    "stats": (lambda e: None, lambda e: e.run(inspect.stats(real(e))).now_ms, 0),
    "upcoming": (lambda e: None, lambda e: e.run(inspect.upcoming(real(e), 1, 1)).now_ms, 0),
}  # fmt: skip


@pytest.mark.parametrize("name", BY_THE_SERVER)
def test_now_is_the_servers(each_engine: Engine, name: str) -> None:
    act, read, after_ms = BY_THE_SERVER[name]
    before = server_ms(each_engine)
    act(each_engine)
    assert before + after_ms <= read(each_engine) <= server_ms(each_engine) + after_ms


def test_a_point_in_time_is_taken_as_it_is(engine: Engine) -> None:
    at = server_ms(engine) + HOUR
    engine.run(produce.schedule(real(engine), [engine.job("a", str(at))], OnConflict.KEEP, ""))
    assert score(engine, "scheduled") == at


def test_a_point_in_the_past_is_due_now(engine: Engine) -> None:
    before = server_ms(engine)
    (ref,) = engine.run(produce.schedule(real(engine), [engine.job("a", "1")], OnConflict.KEEP, "t")).refs
    assert ref.state == State.READY
    assert ref.due_ms is not None
    assert before <= ref.due_ms <= server_ms(engine)
    assert engine.entries()[0][1]["due"] == str(ref.due_ms)


@pytest.mark.parametrize("past", ["0", "-5", str(START - 1), str(START)])
@pytest.mark.parametrize("on_conflict", OnConflict)
def test_every_way_to_schedule_takes_the_past_for_now(each_engine: Engine, on_conflict: OnConflict, past: str) -> None:
    engine = each_engine
    engine.run(inspect.pause(engine.scope, 0))
    (ref,) = engine.run(engine.scheduling([engine.job("a", past)], on_conflict)).refs
    assert ref.due_ms == START
    assert engine.scores("scheduled") == {"a": START}
    engine.now += HOUR
    assert engine.run(inspect.stats(engine.scope)).overdue_oldest_ms == HOUR


@pytest.mark.parametrize("past", ["0", "-5", str(START - 1)])
def test_what_is_moved_into_the_past_is_due_now(each_engine: Engine, past: str) -> None:
    engine = each_engine
    engine.schedule([engine.job("a")])
    assert engine.run(produce.reschedule(engine.scope, "a", past)).due_ms == START
    assert engine.scores("scheduled") == {"a": START}
    for on_conflict in (OnConflict.REPLACE, OnConflict.POSTPONE):
        (ref,) = engine.run(engine.scheduling([engine.job("a", past)], on_conflict)).refs
        assert ref.due_ms == START


@pytest.mark.parametrize("wrong", ["-9007199254740992", "-inf", "nan"])
def test_what_is_no_time_is_refused_and_not_taken_for_the_past(engine: Engine, wrong: str) -> None:
    for on_conflict in OnConflict:
        with pytest.raises(ResponseError, match="due_ms"):
            engine.run(engine.scheduling([engine.job("a", wrong)], on_conflict))
    with pytest.raises(ResponseError, match="due_ms"):
        engine.run(produce.reschedule(engine.scope, "a", wrong))
    assert engine.state("a") == State.ABSENT


@pytest.mark.parametrize("when", [str(LAST), "+1"])
def test_the_last_millisecond_of_all_comes_through_every_path(each_engine: Engine, when: str) -> None:
    engine = each_engine
    engine.now = LAST - 1
    for on_conflict in (OnConflict.KEEP, OnConflict.REPLACE, OnConflict.POSTPONE):
        (ref,) = engine.run(engine.scheduling([engine.job("a", when)], on_conflict)).refs
        assert ref.due_ms == LAST
    assert engine.run(produce.reschedule(engine.scope, "a", when)).due_ms == LAST
    assert due_of(engine) == LAST
    assert engine.run(inspect.list_jobs(engine.scope, State.SCHEDULED, "", 1)).cursor == f"{LAST} a"
    assert engine.run(inspect.upcoming(engine.scope, 1, 1)).counts == (1,)
    assert engine.run(deliver.promote(engine.scope)).wait_us == 1_000
    engine.now = LAST
    assert engine.run(deliver.promote(engine.scope)).moved == 1
    assert engine.entries()[0][1]["due"] == str(LAST)
    (delivery,) = engine.read()
    engine.run(deliver.hand_back(engine.scope, [delivery]))
    assert engine.entries()[0][1]["due"] == str(LAST)
    (delivery,) = engine.read()
    assert engine.run(deliver.release(engine.scope, [Released(delivery, 0)])) == [True]
    assert due_of(engine) == LAST
    engine.run(deliver.promote(engine.scope))
    assert engine.run(deliver.fail(engine.scope, [Failed(engine.read()[0], b"", b"")])) == [True]
    assert score(engine, "failed") == LAST
    assert engine.rows("meta")["mover_tick"] == str(LAST)
    assert engine.run(inspect.stats(engine.scope)).now_ms == LAST


def due_of(engine: Engine) -> Any:
    info = engine.run(inspect.get(engine.scope, "a"))
    return info and info.due_ms


def test_jobs_of_one_millisecond_run_in_the_order_of_their_ids(each_engine: Engine) -> None:
    names = ["a", "B", "b", "Z", "z", "0", "~", "!", "aa", "ab"]
    each_engine.schedule([each_engine.job(name, "+5") for name in names])
    each_engine.now += 5
    each_engine.run(deliver.promote(each_engine.scope))
    assert [one.id for one in each_engine.read()] == sorted(names)
