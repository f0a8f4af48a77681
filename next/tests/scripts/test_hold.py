"""reclaim.lua: when leases can be trusted, and when nothing moves for one lease.

A stall, a failover or a step of the clock makes every lease look over although its worker lives.
"""

import time

import pytest

from delayq.redis.keys import GROUP
from tests.support.future import deliver_in_the_future
from tests.support.queue import HOUR, LEASE, NOW, OTHER, OURS, QueueOnServer, new_job


@pytest.fixture
def dead(queue: QueueOnServer) -> QueueOnServer:
    """A queue whose only worker vanished long ago."""
    queue.reserve("job")
    queue.rest("job", idle_ms=10 * LEASE)
    return queue


def test_after_a_standstill_no_lease_is_trusted_for_one_lease(dead: QueueOnServer) -> None:
    holds = [dead.reclaim(now=NOW + seen).hold_ms for seen in (0, 10_000, 20_000, 29_999)]
    assert holds == [LEASE, 20_000, 10_000, 1]
    assert dead.rows("meta")["reclaim_tick"] == str(NOW + 29_999)
    assert dead.pending()
    assert dead.reclaim(now=NOW + LEASE).reclaimed == 1


@pytest.mark.parametrize("after_ms", [0, 1, 10_000, LEASE // 2])
def test_a_look_in_time_trusts_leases(dead: QueueOnServer, after_ms: int) -> None:
    dead.trust_leases()
    assert dead.reclaim(now=NOW + after_ms).reclaimed == 1


@pytest.mark.parametrize("after_ms", [LEASE // 2 + 1, LEASE, HOUR, -1, -HOUR])
def test_a_late_look_or_a_clock_that_went_back_begins_a_hold(dead: QueueOnServer, after_ms: int) -> None:
    dead.trust_leases()
    assert dead.reclaim(now=NOW + after_ms).hold_ms == LEASE


def test_a_late_look_during_a_hold_begins_it_anew(dead: QueueOnServer) -> None:
    assert [dead.reclaim(now=NOW + after).hold_ms for after in (0, 20_000)] == [LEASE, LEASE]


def test_a_hold_in_the_far_future_is_cut_to_a_lease(dead: QueueOnServer) -> None:
    dead.trust_leases()
    dead.server.hset(dead.key("meta"), "reclaim_hold", NOW + 100 * LEASE)
    assert [dead.reclaim(now=NOW + after).hold_ms for after in (0, 10_000, 20_000)] == [LEASE, 20_000, 10_000]
    assert dead.reclaim(now=NOW + LEASE).reclaimed == 1


def test_a_short_lease_is_a_short_hold(dead: QueueOnServer) -> None:
    dead.configure(900)
    assert [dead.reclaim(now=NOW + after).hold_ms for after in (0, 300, 600)] == [900, 600, 300]
    assert dead.reclaim(now=NOW + 900).reclaimed == 1


def test_several_janitors_are_as_good_as_one(dead: QueueOnServer) -> None:
    holds = [dead.reclaim(now=NOW + 1000 * second).hold_ms for second in range(31)]
    assert holds == [LEASE - 1000 * second for second in range(31)]
    assert dead.rows("recoveries") == {"job": "1"}


def test_a_lost_meta_begins_a_hold(dead: QueueOnServer) -> None:
    dead.trust_leases()
    dead.server.delete(dead.key("meta"))
    assert dead.reclaim(now=NOW + 1000).hold_ms == LEASE


# --- deliveries in the future: the clock went back after them


def reclaim_pages(queue: QueueOnServer, now: int) -> int:
    """Call reclaim until it has walked through all pending entries; return how many jobs it took back."""
    reclaimed = 0
    while True:
        answer = queue.reclaim(now=now)
        reclaimed += answer.reclaimed
        if not answer.more:
            return reclaimed


def test_after_the_clock_went_back_dead_workers_are_found_after_one_lease(queue: QueueOnServer) -> None:
    """More than two pages of entries, of two dead workers, delivered while the clock was an hour ahead."""
    ids = [f"job-{number:04}" for number in range(1100)]
    for first in range(0, 1100, 250):
        queue.schedule_all(*map(new_job, ids[first : first + 250]))
    queue.read(OURS, 600)
    queue.read(OTHER)
    queue.configure(20)
    deliver_in_the_future(queue, HOUR)
    assert reclaim_pages(queue, NOW) == 0
    assert "reclaim_walk" not in queue.rows("meta")
    time.sleep(0.03)
    queue.trust_leases()
    queue.server.hdel(queue.key("meta"), "reclaim_hold")
    assert reclaim_pages(queue, NOW) == 1100


def test_a_worker_that_renews_after_the_clock_went_back_keeps_its_job(queue: QueueOnServer) -> None:
    live, _ = queue.reserve("live", "dead")
    deliver_in_the_future(queue, HOUR)
    queue.renew(live)
    queue.trust_leases()
    queue.reclaim()
    queue.rest("dead")
    assert queue.reclaim().reclaimed == 1
    assert queue.pending() == {live.entry: OURS}


def test_a_clock_that_went_forth_and_back_between_two_looks_begins_no_hold(queue: QueueOnServer) -> None:
    queue.reserve("job")
    queue.trust_leases()
    deliver_in_the_future(queue, HOUR)
    assert queue.reclaim().hold_ms == 0
    time.sleep(0.003)
    (row,) = queue.server.xpending_range(queue.stream, GROUP, "-", "+", 1)
    assert row["time_since_delivered"] > 0
