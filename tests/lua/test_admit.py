"""admit: starts are counted against rates, all or none; who must wait is given a turn. The test moves the clock."""

from __future__ import annotations

import random

import pytest
from redis.exceptions import ResponseError

from delayq.core.limit_views import read_rate
from delayq.core.limiting import Admit, Admitted, Who
from delayq.core.rate_limit import RateLimit
from delayq.redis.calls import limit
from delayq.redis.calls.call import Call
from delayq.redis.keys import LimitKeys
from tests.support.engine import START, Engine
from tests.support.snapshot import word

KEYS = LimitKeys("delayq", "sms")
PASSED = Admitted(True, 0)
MINUTE = 60_000


def admit(engine: Engine, job_id: str, *rates: RateLimit, line: bool = True, entry: str = "") -> Admitted:
    engine._tokens += 1
    who = Who("orders", job_id, entry or f"{engine._tokens}-1")
    return engine.run(limit.admit(engine.scope, Admit(who, "sms", rates, line)))


def passes(engine: Engine, count: int, *rates: RateLimit) -> int:
    """How many of so many new jobs are let through now; none of them waits."""
    return sum(admit(engine, f"n{engine.now}.{n}", *rates, line=False).passed for n in range(count))


def record(engine: Engine, key: str = "") -> str:
    return word(engine.client.hget(KEYS.of("rates"), key) or b"")


def test_a_window_begins_with_the_first_start(each_engine: Engine) -> None:
    engine, rate = each_engine, RateLimit.window(2, "1m")
    assert passes(engine, 3, rate) == 2
    engine.now += MINUTE - 1
    assert admit(engine, "late", rate, line=False) == Admitted(False, 1)
    engine.now += 1
    assert passes(engine, 3, rate) == 2


def test_a_sliding_rate_is_never_exceeded_in_any_window_and_frees_one_by_one(each_engine: Engine) -> None:
    engine, rate = each_engine, RateLimit.sliding(2, "1m")
    assert passes(engine, 1, rate) == 1
    engine.now += 50_000
    assert passes(engine, 3, rate) == 1
    engine.now += 9_999
    assert admit(engine, "w", rate, line=False) == Admitted(False, 1)
    engine.now += 1
    assert passes(engine, 3, rate) == 1, "the first left the window, the second did not"


@pytest.mark.parametrize("most", [3, 64, 65, 200])
def test_no_sliding_window_ever_holds_more(engine: Engine, most: int) -> None:
    """Random arrivals, three times as many as may start; above 64 it counts by the sixtieth, on the safe side."""
    rate, rand, began = RateLimit.sliding(most, "6s"), random.Random(most), list[int]()
    for _ in range(most * 9):
        engine.now += rand.randrange(2 * 6_000 // (3 * most) + 1)
        if passes(engine, 1, rate):
            began.append(engine.now)
    assert all(late - early >= 6_000 for early, late in zip(began, began[most:], strict=False))
    span_ms = began[-1] - START
    assert len(began) >= 0.9 * most * span_ms / 6_000
    assert len(record(engine)) < 2_000


def test_a_bucket_gives_a_burst_and_then_an_even_flow(each_engine: Engine) -> None:
    engine, rate = each_engine, RateLimit.bucket(10, "1s", burst=3)
    assert passes(engine, 5, rate) == 3
    for _ in range(5):
        engine.now += 99
        assert passes(engine, 1, rate) == 0
        engine.now += 1
        assert passes(engine, 2, rate) == 1
    engine.now += 10_000
    assert passes(engine, 5, rate) == 3


def test_all_rates_or_none(each_engine: Engine) -> None:
    """What Laravel gets wrong: an earlier limit keeps its hit when a later one blocks."""
    engine, wide, narrow = each_engine, RateLimit.window(10, "1m").by("all"), RateLimit.window(1, "1h").by("one")
    assert admit(engine, "a", wide, narrow) == PASSED
    before = record(engine, "all")
    for job in ("b", "c"):
        assert not admit(engine, job, wide, narrow, line=False).passed
    assert record(engine, "all") == before
    assert passes(engine, 20, wide) == 9


def test_two_rates_of_one_key_are_counted_apart(engine: Engine) -> None:
    rates = (RateLimit.window(2, "1s").by("k"), RateLimit.window(3, "1m").by("k"))
    assert passes(engine, 5, *rates) == 2
    engine.now += 1_000
    assert passes(engine, 5, *rates) == 1


def test_who_must_wait_is_given_a_turn_each_its_own(each_engine: Engine) -> None:
    engine, rate = each_engine, RateLimit.bucket(10, "1s", burst=1)
    assert admit(engine, "a", rate) == PASSED
    assert [admit(engine, f"w{n}", rate).wait_ms for n in range(5)] == [100, 200, 300, 400, 500]
    assert admit(engine, "w2", rate) == Admitted(False, 300), "who asks again keeps its turn"


@pytest.mark.parametrize(
    "rate", [RateLimit.bucket(10, "1s", burst=1), RateLimit.sliding(10, "1s"), RateLimit.window(10, "1s")], ids=str
)
def test_a_thousand_jobs_come_once_each_and_no_place_is_left_unused(engine: Engine, rate: RateLimit) -> None:
    """Each that is turned away comes back exactly when it was told to: at most one more time."""
    due = {f"j{n}": engine.now for n in range(300)}
    asked, began = 0, list[int]()
    while due:
        job = min(due, key=lambda name: due[name])
        engine.now = max(engine.now, due[job])
        asked += 1
        answer = admit(engine, job, rate)
        if answer.passed:
            began.append(engine.now)
            del due[job]
        else:
            assert answer.wait_ms > 0
            due[job] = engine.now + answer.wait_ms
    assert asked <= 2 * 300 + 10
    assert began[-1] - began[0] <= 300 / 10 * 1_000 + 1_000
    assert engine.client.zcard(KEYS.of("turns")) == 0


def test_who_is_new_goes_behind_those_who_wait(engine: Engine) -> None:
    rate = RateLimit.bucket(10, "1s", burst=1)
    admit(engine, "a", rate)
    admit(engine, "first", rate)
    admit(engine, "second", rate)
    engine.now += 100
    assert admit(engine, "new", rate) == Admitted(False, 200), "there is room now, but it is somebody's"
    assert admit(engine, "first", rate) == PASSED


def test_who_comes_a_little_late_goes_first_again(engine: Engine) -> None:
    rate = RateLimit.bucket(10, "1s", burst=1)
    for job in ("a", "first", "second", "third"):
        admit(engine, job, rate)
    engine.now += 210
    assert admit(engine, "first", rate) == PASSED
    assert admit(engine, "second", rate) == Admitted(False, 100), "before the third, which had its turn at 300"


def test_a_line_whose_jobs_do_not_come_holds_up_nobody_for_long(engine: Engine) -> None:
    """A paused queue with a long line must not keep the jobs of other queues waiting."""
    rate = RateLimit.bucket(10, "1s", burst=1)
    admit(engine, "a", rate)
    for n in range(1_000):
        admit(engine, f"paused{n}", rate)
    engine.now += 2_000
    assert not admit(engine, "b", rate, line=False).passed
    engine.now += 101
    assert admit(engine, "b", rate) == PASSED
    assert admit(engine, "c", rate).wait_ms <= 100


def test_a_line_of_late_jobs_does_not_exceed_the_rate(engine: Engine) -> None:
    """They all come at once when their queue goes on; their turns are over, and the counts alone decide."""
    rate, jobs = RateLimit.bucket(10, "1s", burst=2), [f"j{n}" for n in range(50)]
    for job in jobs:
        admit(engine, job, rate)
    engine.now += 30_000
    assert sum(admit(engine, job, rate).passed for job in jobs) == 2


def test_a_turn_is_kept_by_the_rate_that_makes_wait_the_longest(engine: Engine) -> None:
    """A user who is over a limit of its own takes no turns from the others."""
    everybody = RateLimit.bucket(10, "1s", burst=1).by("all")
    admit(engine, "a", everybody, RateLimit.window(1, "1h").by("u1"))
    for n in range(20):
        assert admit(engine, f"u1.{n}", everybody, RateLimit.window(1, "1h").by("u1")).wait_ms >= 3_600_000
    assert admit(engine, "b", everybody, RateLimit.window(1, "1h").by("u2")) == Admitted(False, 100)


def test_the_same_call_again_counts_once(engine: Engine) -> None:
    rate = RateLimit.window(2, "1m")
    call = limit.admit(engine.scope, Admit(Who("orders", "a", "7-1"), "sms", (rate,)))
    assert engine.run(call) == engine.unchanged(call) == PASSED
    assert passes(engine, 3, rate) == 1


@pytest.mark.parametrize("rate", [RateLimit.window(2, "1m"), RateLimit.sliding(2, "1m"), RateLimit.bucket(2, "1m")])
@pytest.mark.parametrize("step", [-3_600_000, 3_600_000])
def test_a_clock_that_steps_stops_nobody_for_the_step(engine: Engine, rate: RateLimit, step: int) -> None:
    assert passes(engine, 3, rate) == 2
    admit(engine, "w", rate)
    engine.now += step
    later = admit(engine, "x", rate, line=False)
    assert later.wait_ms <= 2 * MINUTE
    engine.now += later.wait_ms
    assert passes(engine, 1, rate) == 1


def test_what_has_ended_is_forgotten_by_and_by(engine: Engine) -> None:
    for n in range(20):
        admit(engine, f"j{n}", RateLimit.window(1, "1s").by(f"user{n}"))
    engine.now += 61_000
    for n in range(5):
        admit(engine, f"k{n}", RateLimit.window(1, "1h").by("last"))
    assert {word(name) for name in engine.client.hkeys(KEYS.of("rates"))} == {"last"}


def test_a_rate_that_is_changed_goes_on_with_what_was_counted(engine: Engine) -> None:
    assert passes(engine, 5, RateLimit.window(2, "1m")) == 2
    assert passes(engine, 5, RateLimit.window(4, "1m")) == 2
    assert passes(engine, 5, RateLimit.sliding(4, "1m")) == 4, "another way of counting begins anew"


@pytest.mark.parametrize("rate", [RateLimit.window(3, "1m"), RateLimit.sliding(3, "1m"), RateLimit.bucket(3, "1m")])
def test_people_are_shown_what_is_left(engine: Engine, rate: RateLimit) -> None:
    passes(engine, 2, rate)
    view = read_rate("", record(engine), engine.now)
    assert view is not None
    assert (view.kind, view.used, view.most, view.free_ms) == (rate.kind, 2, 3, engine.now)
    passes(engine, 2, rate)
    full = read_rate("", record(engine), engine.now)
    assert full is not None
    assert (full.used, full.free_ms) == (3, engine.now + (20_000 if rate.kind == "bucket" else MINUTE))


def test_what_is_no_rate_is_refused_before_anything_is_written(engine: Engine) -> None:
    call = limit.admit(engine.scope, Admit(Who("orders", "a", "1-1"), "sms", (RateLimit.per_minute(1),)))
    broken = Call(call.script, call.keys, (*call.args[:-1], "many"), call.parse)
    with pytest.raises(ResponseError, match="a rate is"):
        engine.unchanged(broken)
