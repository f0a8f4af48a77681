"""acquire, vacate, line_up, kept: so many hold a place at a time, who waits is woken, and who is gone is found out."""

from __future__ import annotations

from typing import Any

import pytest
from redis.exceptions import ResponseError

from delayq.core.limiting import Place, Who
from delayq.redis.calls import limit
from delayq.redis.calls.call import Call
from delayq.redis.calls.deliver import Held
from delayq.redis.calls.limit import Got, Left
from delayq.redis.keys import GROUP, LimitKeys
from tests.support.engine import OURS, Engine
from tests.support.snapshot import word

KEYS = LimitKeys("delayq", "api")


def who(job_id: str, entry: str = "1-1") -> Who:
    return Who("orders", job_id, entry)


def place(limit: int = 2, key: str = "k", expire_ms: int = 0) -> Place:
    return Place("api", key, limit, expire_ms)


def acquire(engine: Engine, job_id: str, at: Place, stale: tuple[str, ...] = (), entry: str = "1-1") -> Got:
    return engine.run(limit.acquire(engine.scope, at, who(job_id, entry), stale))


def vacate(engine: Engine, job_id: str, at: Place) -> Left:
    return engine.run(limit.vacate(engine.scope, at, who(job_id).holder))


def wait(engine: Engine, job_id: str, at: Place) -> bool:
    return engine.run(limit.line_up(engine.scope, at, who(job_id)))


def members(engine: Engine, role: str, key: str = "k") -> list[str]:
    return [word(one) for one in engine.client.zrange(KEYS.of_key(role, key), 0, -1)]


def counters(engine: Engine) -> dict[str, str]:
    return {word(name): word(value) for name, value in engine.client.hgetall(KEYS.of("counters")).items()}


def test_no_more_than_there_are_and_each_key_has_its_own(each_engine: Engine) -> None:
    engine = each_engine
    assert [acquire(engine, job, place()).taken for job in ("a", "b", "c")] == [True, True, False]
    assert acquire(engine, "c", place(key="other")).taken
    assert members(engine, "holders") == ["orders a 1-1", "orders b 1-1"]
    assert counters(engine) == {"taken_total": "3", "blocked_total": "1"}


def test_who_is_turned_away_is_told_who_holds_the_places_and_how_many_wait(engine: Engine) -> None:
    acquire(engine, "a", place(1))
    wait(engine, "w", place(1))
    assert acquire(engine, "b", place(1)) == Got(False, 1, ("orders a 1-1",))


def test_a_holder_that_is_gone_is_removed_and_no_other(engine: Engine) -> None:
    acquire(engine, "a", place())
    acquire(engine, "b", place())
    assert acquire(engine, "c", place(), stale=("orders b 1-1", "orders x 1-1")).taken
    assert members(engine, "holders") == ["orders a 1-1", "orders c 1-1"]


def test_of_several_places_that_become_free_at_once_the_others_wake_who_waits(engine: Engine) -> None:
    at = place(3)
    for job in ("a", "b", "c"):
        acquire(engine, job, at)
    for n, job in enumerate(("w1", "w2", "w3")):
        engine.now += n
        wait(engine, job, at)
    got = acquire(engine, "d", at, stale=("orders a 1-1", "orders b 1-1"))
    assert got == Got(True, 0, ("orders w1",)), "one of the two places is taken by the one who asked"
    assert members(engine, "waiting") == ["orders w2", "orders w3"]


def test_a_resent_acquire_takes_one_place(engine: Engine) -> None:
    call = limit.acquire(engine.scope, place(), who("a"))
    assert engine.run(call).taken
    assert engine.unchanged(call).taken
    assert members(engine, "holders") == ["orders a 1-1"]


def test_another_entry_of_the_same_job_is_another_holder(engine: Engine) -> None:
    acquire(engine, "a", place(1))
    assert acquire(engine, "a", place(1), entry="2-1") == Got(False, 0, ("orders a 1-1",))
    assert acquire(engine, "a", place(1), ("orders a 1-1",), "2-1").taken


def test_who_leaves_wakes_who_has_waited_longest(each_engine: Engine) -> None:
    engine, at = each_engine, place(1)
    acquire(engine, "a", at)
    for job in ("z", "y", "z"):
        engine.now += 1
        assert wait(engine, job, at) is False
    assert vacate(engine, "a", at) == Left(True, "orders z"), "who lines up twice keeps the first place in the line"
    assert vacate(engine, "a", at) == Left(False, ""), "a place that is not held wakes nobody"
    assert engine.run(limit.vacate(engine.scope, at, "")) == Left(False, "orders y"), "the woken one did not come"
    assert engine.key_names() == {"delayq:{limit:api}:counters"}, "a limit nobody uses leaves nothing but its counts"


def test_nobody_is_woken_while_there_is_no_place(engine: Engine) -> None:
    acquire(engine, "a", place(3))
    acquire(engine, "b", place(3))
    acquire(engine, "c", place(3))
    wait(engine, "w", place(3))
    assert vacate(engine, "a", place(1)) == Left(True, ""), "the limit is smaller by now"
    assert members(engine, "waiting") == ["orders w"]


def test_a_place_that_became_free_meanwhile_is_seen_before_lining_up(engine: Engine) -> None:
    acquire(engine, "a", place(1))
    vacate(engine, "a", place(1))
    assert wait(engine, "w", place(1)) is True
    assert members(engine, "waiting") == []


def test_who_takes_a_place_waits_no_more(engine: Engine) -> None:
    acquire(engine, "a", place(1))
    wait(engine, "w", place(1))
    vacate(engine, "x", place(1))
    assert members(engine, "waiting") == ["orders w"]
    assert acquire(engine, "w", place(1), ("orders a 1-1",)).taken
    assert members(engine, "waiting") == []


def test_so_many_wait_and_no_more(engine: Engine) -> None:
    acquire(engine, "a", place(1))
    call = limit.line_up(engine.scope, place(1), who("w1"))
    assert engine.run(call) is False
    full = Call(call.script, call.keys, (*call.args[:3], "orders w2", 1), call.parse)
    assert engine.run(full) is False
    assert members(engine, "waiting") == ["orders w1"]


def test_a_place_may_expire_by_the_clock(engine: Engine) -> None:
    at = place(1, expire_ms=1_000)
    acquire(engine, "a", at)
    engine.now += 999
    assert not acquire(engine, "b", at).taken
    engine.now += 1
    assert acquire(engine, "b", at).taken
    assert vacate(engine, "a", at) == Left(False, ""), "its place was passed on"
    assert members(engine, "holders") == ["orders b 1-1"]


def test_a_clock_that_steps_changes_nothing_for_holders(engine: Engine) -> None:
    acquire(engine, "a", place(1))
    for step in (3_600_000, -7_200_000):
        engine.now += step
        assert not acquire(engine, "b", place(1)).taken
    vacate(engine, "a", place(1))
    assert acquire(engine, "b", place(1)).taken


def test_of_many_holders_every_one_is_named_in_some_millisecond(engine: Engine) -> None:
    at = place(250)
    for n in range(250):
        acquire(engine, f"j{n}", at)
    named: set[str] = set()
    for _ in range(3):
        got = acquire(engine, "late", at)
        assert len(got.others) <= 100
        named |= set(got.others)
        engine.now += 1
    assert len(named) == 250


def test_what_is_no_limit_is_refused_before_anything_is_written(engine: Engine) -> None:
    vacate_one = limit.vacate(engine.scope, place(), "x")
    calls: list[Call[Any]] = [
        limit.acquire(engine.scope, place(0), who("a")),
        Call(vacate_one.script, vacate_one.keys, ("k", "many", "x"), vacate_one.parse),
    ]
    for call in calls:
        with pytest.raises(ResponseError, match="a limit is a number"):
            engine.unchanged(call)
    assert engine.key_names() == set()


def test_whom_somebody_renewed_is_kept_and_whom_nobody_did_is_told_for_how_long(each_engine: Engine) -> None:
    engine = each_engine
    held = engine.reserved("a", "b", "c")
    engine.client.hset(engine.keys.meta, "lease_ms", "20000")
    engine.client.xclaim(engine.keys.stream, GROUP, OURS, 0, [held[1].entry], idle=60_000, justid=True)
    engine.client.xack(engine.keys.stream, GROUP, held[2].entry)

    seen = engine.run(limit.kept(engine.scope, [*held, Held("a", "1-1"), Held("nobody", "1-1")]))

    assert seen.lease_ms == 20_000
    first, left, *others = seen.idle_ms
    assert (first or 0) < 20_000
    assert (left or 0) >= 60_000
    assert others == [0, None, None], "its row is about to be mended; another entry; no such job"
