"""When reclaim trusts leases, and when it waits: after a stall, a new janitor, a stepped clock."""

from __future__ import annotations

import pytest

from delayq.redis.calls import deliver
from delayq.redis.calls.call import Scope
from delayq.redis.calls.deliver import Reclaimed
from tests.support.engine import Engine

LEASE = 30_000
HALF = LEASE // 2


def tick(engine: Engine, after_ms: int = 0) -> Reclaimed:
    engine.now += after_ms
    return engine.run(deliver.reclaim(engine.scope))


@pytest.fixture
def trusted(engine: Engine) -> Engine:
    """A dead worker's job, and a janitor that has ticked for long enough."""
    engine.reserved("a")
    engine.calm()
    engine.rest([engine.held("a").entry], 10 * LEASE)
    return engine


def test_a_first_tick_waits_a_whole_lease(engine: Engine) -> None:
    engine.reserved("a")
    engine.rest([engine.held("a").entry], 10 * LEASE)
    answer, names = engine.changes(deliver.reclaim(engine.scope))
    assert (answer, names) == (Reclaimed(0, 0, LEASE, LEASE, False), {"meta"})
    meta = engine.rows("meta")
    assert (meta["reclaim_tick"], meta["reclaim_hold"]) == (str(engine.now), str(engine.now + LEASE))


def test_then_it_counts_down_and_takes_back(engine: Engine) -> None:
    engine.reserved("a")
    engine.rest([engine.held("a").entry], 10 * LEASE)
    holds = [tick(engine).hold_ms, tick(engine, 10_000).hold_ms, tick(engine, 10_000).hold_ms]
    assert holds == [LEASE, 20_000, 10_000]
    assert tick(engine, 9_999) == Reclaimed(0, 0, 1, LEASE, False)
    assert tick(engine, 1) == Reclaimed(1, 0, 0, LEASE, False)


@pytest.mark.parametrize("after_ms", [0, 1, 10_000, HALF])
def test_ticks_in_time_are_trusted(trusted: Engine, after_ms: int) -> None:
    assert tick(trusted, after_ms) == Reclaimed(1, 0, 0, LEASE, False)


@pytest.mark.parametrize("after_ms", [HALF + 1, LEASE, 3_600_000, 10 * 365 * 86_400_000])
def test_a_tick_that_is_late_is_not(trusted: Engine, after_ms: int) -> None:
    """Redis stood still, the command was queued, or there was no janitor: live workers had no chance to renew."""
    assert tick(trusted, after_ms) == Reclaimed(0, 0, LEASE, LEASE, False)
    assert trusted.pending()


@pytest.mark.parametrize("back_ms", [1, HALF, 3_600_000])
def test_nor_is_a_clock_that_went_back(trusted: Engine, back_ms: int) -> None:
    assert tick(trusted, -back_ms) == Reclaimed(0, 0, LEASE, LEASE, False)


def test_a_hold_in_the_far_future_is_cut_to_a_lease(trusted: Engine) -> None:
    """The clock was ahead when it was set, and is right again."""
    trusted.client.hset(trusted.keys.meta, "reclaim_hold", trusted.now + 100 * LEASE)
    assert tick(trusted).hold_ms == LEASE
    assert [tick(trusted, 10_000).hold_ms for _ in range(2)] == [20_000, 10_000]
    assert tick(trusted, 10_000).back == 1


def test_a_late_tick_during_a_hold_starts_it_anew(engine: Engine) -> None:
    engine.reserved("a")
    assert tick(engine).hold_ms == LEASE
    assert tick(engine, 20_000).hold_ms == LEASE


def test_a_shorter_lease_is_a_shorter_hold(engine: Engine) -> None:
    short = engine.with_options(lease_ms=900)
    short.reserved("a")
    short.rest([short.held("a").entry], 900)
    assert [tick(short).hold_ms, tick(short, 300).hold_ms, tick(short, 300).hold_ms] == [900, 600, 300]
    assert tick(short, 300).back == 1


def test_two_janitors_are_as_good_as_one(engine: Engine) -> None:
    engine.reserved("a")
    engine.rest([engine.held("a").entry], 10 * LEASE)
    holds = [tick(engine, 1_000).hold_ms for _ in range(31)]
    assert holds == [max(0, LEASE - 1_000 * n) for n in range(31)]
    assert engine.rows("recoveries") == {"a": "1"}


def test_meta_that_was_deleted_means_waiting(trusted: Engine) -> None:
    trusted.client.delete(trusted.keys.meta)
    assert tick(trusted, 1_000) == Reclaimed(0, 0, LEASE, LEASE, False)


def test_by_the_servers_clock(engine: Engine) -> None:
    engine.reserved("a")
    seconds = engine.client.time()[0]
    assert engine.run(deliver.reclaim(Scope(engine.options, engine.queue))).hold_ms == LEASE
    assert abs(int(engine.rows("meta")["reclaim_tick"]) - seconds * 1000) < 60_000
