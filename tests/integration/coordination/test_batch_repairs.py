"""Batches that are cancelled, retried, begun twice or left half begun: none is lost, none runs on, each can end."""

from __future__ import annotations

import pytest

from delayq.core.followups import Plan
from delayq.core.spec import JobSpec
from delayq.core.states import OnConflict, State
from delayq.drivers.base import Claim
from delayq.jobs.batch import PendingBatch, batch, find_batch
from delayq.jobs.chain import chain
from delayq.jobs.dispatch import named
from delayq.jobs.links import NOWHERE, Builder
from delayq.jobs.plans import Member
from delayq.manager import Manager
from delayq.redis.batch_verbs import BatchVerbs
from tests.support.members import Flaky, Slow, cut, finished, numbers, work
from tests.support.station import QUEUE, Station
from tests.support.steps import QUEUES, Steps
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("manager")


@pytest.fixture
def steps(station: Station) -> Steps:
    return Steps(station)


def plan_of(pending: PendingBatch, manager: Manager) -> Plan:
    return pending.plan(Builder(manager), NOWHERE, None)


# -- retries ---------------------------------------------------------------------------------------------------------


def test_all_that_failed_together_are_retried(station: Station, steps: Steps) -> None:
    flaky = Flaky(station, together=3)
    batch([flaky(f"m{n}") for n in range(3)], id="b", then=steps("then"), catch=steps("catch")).dispatch()
    with work(station, threads=3):
        assert numbers(finished("b")) == (0, 0, 3, 0)
        steps.until("catch")
        steps.quiet()
        flaky.mend()
        station.client.pause(QUEUE)
        assert station.client.batches.retry("b") == 3
        wait_until(lambda: not station.connector.commands().xlen(station.keys().of("outbox")), what="all is carried")
        assert (numbers(find_batch("b")), find_batch("b").state) == ((3, 0, 0, 0), "running")
        station.client.resume(QUEUE)
        steps.until("then")
        steps.quiet()
    assert (numbers(find_batch("b")), find_batch("b").state) == ((0, 3, 0, 0), "finished")
    assert steps.counts == {"catch": 1, "then": 1}


def test_one_of_two_may_be_retried_by_hand(station: Station, steps: Steps) -> None:
    flaky = Flaky(station, together=2)
    batch([flaky("m0"), flaky("m1")], id="b", catch=steps("catch")).dispatch()
    with work(station, threads=2):
        assert finished("b").failed == 2
        steps.until("catch")
        steps.quiet()
        flaky.mend()
        station.client.retry("m0", queue=QUEUE)
        wait_until(lambda: find_batch("b").done == 1, what="it has run")
        steps.quiet()
    info = find_batch("b")
    assert (numbers(info), info.cancelled_ms, steps.counts) == ((0, 1, 1, 0), None, {"catch": 1})


def test_after_a_retry_in_which_nothing_fails_only_what_is_due_is_sent(station: Station, steps: Steps) -> None:
    flaky = Flaky(station)
    callbacks = {name: steps(name) for name in ("progress", "then", "catch", "finally_")}
    batch([flaky("m0")], id="b", allow_failures=True, **callbacks).dispatch()  # type: ignore[arg-type]
    with work(station):
        steps.until("progress", "catch", "finally_")
        steps.quiet()
        before = steps.counts
        flaky.mend()
        station.client.batches.retry("b")
        steps.until("then")
        steps.quiet()
    assert steps.counts - before == {"progress": 1, "then": 1, "finally_": 1}


def test_what_was_skipped_stays_skipped(station: Station, steps: Steps) -> None:
    flaky = Flaky(station)
    batch([flaky("m0"), steps("late", delay="1h")], id="b", then=steps("then"), catch=steps("catch")).dispatch()
    with work(station):
        assert numbers(finished("b")) == (0, 0, 1, 1)
        flaky.mend()
        station.client.batches.retry("b")
        wait_until(lambda: find_batch("b").done == 1, what="it has run")
        info = finished("b")
        steps.quiet()
    assert (numbers(info), info.state, steps.counts) == ((0, 1, 0, 1), "incomplete", {"catch": 1})


def test_an_inner_batch_that_is_retried_takes_the_outer_one_up(station: Station, steps: Steps) -> None:
    flaky = Flaky(station)
    batch(
        [batch([flaky("m0")], id="inner"), steps("a")], id="outer", allow_failures=True, then=steps("then")
    ).dispatch()
    with work(station):
        assert numbers(finished("outer")) == (0, 1, 1, 0)
        steps.quiet()
        flaky.mend()
        assert station.client.batches.retry("outer") == 1
        steps.until("then")
        steps.quiet()
    assert [find_batch(name).state for name in ("inner", "outer")] == ["finished", "finished"]


def test_an_inner_batch_with_nothing_to_retry_leaves_the_outer_one_finished(station: Station, steps: Steps) -> None:
    flaky = Flaky(station)
    batch([batch([flaky("m0")], id="inner")], id="outer").dispatch()
    with work(station):
        finished("outer")
        steps.quiet()
    station.client.forget(["m0"], queue=QUEUE)
    assert station.client.batches.retry("outer") == 0
    assert (find_batch("outer").state, numbers(find_batch("outer"))) == ("failed", (0, 0, 1, 0))


# -- begun twice -----------------------------------------------------------------------------------------------------


def mixed(steps: Steps) -> PendingBatch:
    """A batch whose members have no ids of their own."""
    inner = batch([steps("i0"), steps("i1")], then=steps("inner then"))
    members: list[Member] = [steps("a"), steps("b").on_queue("mails"), chain(steps("c0"), steps("c1")), inner]
    return batch(members, id="same", then=steps("then"), before=steps("before"))


ALL = ("a", "b", "c0", "c1", "i0", "i1", "inner then", "then", "before")


def test_the_same_id_is_the_same_batch(station: Station, steps: Steps) -> None:
    mixed(steps).dispatch()
    mixed(steps).dispatch()
    with work(station):
        steps.until(*ALL)
        steps.quiet()
        ended = find_batch("same")
        assert mixed(steps).dispatch() == ended
        steps.quiet()
    assert (steps.counts, numbers(ended)) == (dict.fromkeys(ALL, 1), (0, 5, 0, 0))


@pytest.mark.parametrize("after", [3, 5, 7, 9])
def test_a_batch_half_begun_is_begun_to_the_end(station: Station, steps: Steps, manager: Manager, after: int) -> None:
    verbs = station.client.verbs
    station.client.run(cut(BatchVerbs(verbs).open(plan_of(mixed(steps), manager)), after))
    with work(station):
        steps.quiet()
        assert find_batch("same").finished_ms is None
        mixed(steps).dispatch()
        steps.until(*ALL)
        steps.quiet()
    assert steps.counts == dict.fromkeys(ALL, 1)


def test_a_cancelled_one_is_not_begun_again(station: Station, steps: Steps) -> None:
    mixed(steps).dispatch()
    station.client.batches.cancel("same")
    assert mixed(steps).dispatch().state == "cancelled"
    with work(station):
        steps.until("before")
        steps.quiet()
    assert steps.counts == {"before": 1}


# -- cancelled -------------------------------------------------------------------------------------------------------


def test_no_later_link_of_a_running_chain_starts(station: Station, steps: Steps) -> None:
    slow = Slow(station)
    batch([chain(named("slow"), steps("next"), steps("after that").on_queue("mails"))], id="b").dispatch()
    with work(station):
        assert slow.started.wait(50)
        assert station.client.batches.cancel("b").state == "cancelling"
        slow.go_on.set()
        info = finished("b")
        steps.quiet()
    info = find_batch("b")
    assert (numbers(info), info.state, steps.ran) == ((0, 1, 0, 2), "cancelled", [])


def test_a_member_that_fails_is_not_tried_again(station: Station, steps: Steps) -> None:
    slow = Slow(station)
    batch([named("slow", {"fails": True}).having(tries=3, backoff="1h")], id="b").dispatch()
    with work(station):
        assert slow.started.wait(50)
        station.client.batches.cancel("b")
        slow.go_on.set()
        info = finished("b")
        steps.quiet()
    assert (numbers(info), slow.attempts[:]) == ((0, 0, 0, 1), [1])


def test_one_that_waits_for_its_next_try_is_not_started(station: Station, steps: Steps) -> None:
    """Its release and the cancel may pass each other: then its start finds out."""
    batch([steps("a", id="a")], id="b").dispatch()
    (delivery,) = station.driver.consumer("dq:there:1:x", [QUEUE]).fetch([], 1).deliveries
    station.client.batches.cancel("b")
    station.driver.steward([QUEUE]).hand_back([Claim(delivery.queue, delivery.id, delivery.entry)])
    with work(station):
        info = finished("b")
        steps.quiet()
    assert (numbers(info), steps.ran, station.ends("a")) == ((0, 0, 0, 1), [], ["stopped"])


def test_a_siblings_failure_lets_no_later_link_start(station: Station, steps: Steps) -> None:
    slow, flaky = Slow(station), Flaky(station)
    batch([chain(named("slow"), steps("next")), flaky("bad")], id="b").dispatch()
    with work(station, threads=2):
        assert slow.started.wait(50)
        wait_until(lambda: find_batch("b").cancelled_ms, what="the failure has cancelled it")
        slow.go_on.set()
        info = finished("b")
        steps.quiet()
    info = find_batch("b")
    assert (numbers(info), steps.ran) == ((0, 1, 1, 1), [])


def test_a_batch_behind_a_running_link_does_not_begin(station: Station, steps: Steps) -> None:
    slow = Slow(station)
    inner = batch([steps("in")], id="inner", then=steps("inner then"), finally_=steps("inner finally"))
    batch([chain(named("slow"), inner)], id="outer", finally_=steps("finally")).dispatch()
    with work(station):
        assert slow.started.wait(50)
        station.client.batches.cancel("outer")
        slow.go_on.set()
        steps.until("finally")
        steps.quiet()
    assert (numbers(find_batch("outer")), steps.counts) == ((0, 1, 0, 1), {"finally": 1})
    assert [info.id for info in station.client.batches.list(5)] == ["outer"]


# -- each can end ----------------------------------------------------------------------------------------------------


def test_one_whose_producer_died_ends_when_it_is_cancelled(station: Station, steps: Steps, manager: Manager) -> None:
    pending = batch([steps(f"m{n}", delay="1h").on_queue(QUEUES[n % 3]) for n in range(6)], id="half")
    station.client.run(cut(BatchVerbs(station.client.verbs).open(plan_of(pending, manager)), 6))
    assert any(station.client.get(f"half.{n:06}", queue=QUEUES[n % 3]) for n in range(6)), "some are on their way"
    info = station.client.batches.cancel("half")
    assert (numbers(info), info.state) == ((0, 0, 0, 6), "cancelled")
    assert station.connector.commands().pttl("delayq:{batch:half}:plan") > 0


def test_a_member_that_was_replaced_is_none_any_more(station: Station, steps: Steps) -> None:
    batch([chain(steps("a", id="a").delay("1h"), steps("b"))], id="b").dispatch()
    other = JobSpec(name="step", data={"name": "other"}, queue=QUEUE, id="a")
    station.client.run(station.client.verbs.schedule(other, OnConflict.REPLACE))
    with work(station):
        steps.until("other")
        info = finished("b")
        steps.quiet()
    assert (numbers(info), info.state, steps.ran) == ((0, 0, 0, 2), "incomplete", ["other"])


def test_members_that_are_gone_do_not_keep_a_cancelled_one(station: Station, steps: Steps) -> None:
    batch([steps("a", id="a").delay("1h"), steps("b", id="b").delay("1h")], id="b").dispatch()
    commands = station.connector.commands()
    for key, take in (("scheduled", commands.zrem), ("jobs", commands.hdel)):
        take(station.keys().of(key), "a")
    info = station.client.batches.cancel("b")
    assert (numbers(info), info.state) == ((0, 0, 0, 2), "cancelled")
    assert station.state("b") is State.ABSENT
