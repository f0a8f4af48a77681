"""What passes a batch or chain by: a cancel beside an opening, an end no relay has told of, an id taken meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from delayq.core.outcome import Ack
from delayq.core.states import State
from delayq.drivers.base import Settlement
from delayq.jobs.batch import PendingBatch, batch, find_batch
from delayq.jobs.chain import chain
from delayq.jobs.dispatch import named
from delayq.jobs.links import NOWHERE, Builder
from delayq.manager import Manager
from delayq.redis import whole
from delayq.redis.called_off import called_off
from delayq.redis.follow_verbs import FollowVerbs
from delayq.redis.verbs import Flow
from tests.support.members import Slow, cut, finished, numbers, work
from tests.support.station import QUEUE, Station
from tests.support.steps import Steps
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("manager")


@pytest.fixture
def steps(station: Station) -> Steps:
    return Steps(station)


def opening(station: Station, manager: Manager, pending: PendingBatch) -> Flow[Any]:
    """As a dispatch, without its question whether ids are taken."""
    return FollowVerbs(station.client.verbs).open(pending.plan(Builder(manager), NOWHERE, None))


def watched(flow: Flow[Any], look: Callable[[int], None]) -> Flow[int]:
    """A verb, with a look before each of its calls and after the last; how many there were."""
    answer, count = None, 0
    while True:
        look(count)
        try:
            answer = yield flow.send(answer)
        except StopIteration:
            look(count + 1)
            return count
        count += 1


# -- a cancel beside an opening --------------------------------------------------------------------------------------


def test_nothing_of_an_inner_batch_may_start_once_the_outer_one_has_ended(
    station: Station, steps: Steps, manager: Manager
) -> None:
    """The outer one is cancelled before each call of its opening in turn; looked at after each call from then on."""
    commands = station.connector.commands()
    after, calls, ended = 0, 1, 0
    while after < calls:
        outer, inner, member = (f"{what}{after}" for what in ("outer", "inner", "in"))

        def look(count: int, at: int = after, outer: str = outer, inner: str = inner, member: str = member) -> None:
            nonlocal ended
            known = commands.exists(f"delayq:{{batch:{outer}}}:plan")
            if count == at and known:
                station.client.batches.cancel(outer)
            if not known or find_batch(outer).finished_ms is None:
                return
            ended += 1
            if station.state(member) is not State.ABSENT:
                off = station.client.run(called_off(station.client.verbs, inner, member, 0))
                assert off, f"cancelled before call {at}: {member} may start after call {count}, {outer} has ended"

        pending = batch([batch([steps(member, id=member)], id=inner)], id=outer)
        calls = station.client.run(watched(opening(station, manager, pending), look))
        after += 1
    assert (calls > 8, ended > calls) == (True, True), "each was cancelled somewhere"


# -- an end that no relay has told of --------------------------------------------------------------------------------


def test_a_member_that_has_succeeded_does_not_count_as_skipped(station: Station, steps: Steps) -> None:
    """Its note waits in the outbox, because nobody carries it."""
    batch([steps("a", id="a")], id="b", then=steps("then"), finally_=steps("finally")).dispatch()
    consumer = station.driver.consumer("dq:there:1:x", [QUEUE])
    (delivery,) = consumer.fetch([], 1).deliveries
    assert consumer.settle([Settlement(delivery, Ack())]).settled == [True]
    assert find_batch("b").pending == 1
    assert numbers(station.client.batches.cancel("b")) == (0, 1, 0, 0)
    with work(station):
        steps.until("then", "finally")
        steps.quiet()
    assert (numbers(find_batch("b")), steps.counts) == ((0, 1, 0, 0), {"then": 1, "finally": 1})
    assert steps.headers("finally")["delayq-batch-done"] == "1"


def test_an_outbox_is_searched_to_its_end(station: Station, steps: Steps) -> None:
    """Many others wait in front of the note; those of the batch that were never sent count as skipped."""
    count = 250
    batch([steps(f"o{n}", id=f"o{n}") for n in range(count)], id="others").dispatch()
    batch([chain(steps("a", id="a"), steps("behind").on_queue("mails"))], id="b").dispatch()
    consumer = station.driver.consumer("dq:there:1:x", [QUEUE])
    while deliveries := consumer.fetch([], 100).deliveries:
        assert all(consumer.settle([Settlement(delivery, Ack()) for delivery in deliveries]).settled)
    assert numbers(station.client.batches.cancel("b")) == (0, 1, 0, 1)
    assert find_batch("others").pending == count, "what others have to say is left to a relay"


# -- a queue that is cleared where nobody works ------------------------------------------------------------------------


def test_a_batch_hears_at_once_that_a_queue_nobody_serves_was_cleared(station: Station, steps: Steps) -> None:
    members = [chain(steps(f"m{n}", delay="1h"), steps(f"l{n}")) for n in range(3)]
    batch([*members, batch([steps("in", delay="1h")])], id="b", finally_=steps("finally", queue="mails")).dispatch()
    assert station.client.clear() == 4
    assert (numbers(find_batch("b")), find_batch("b").state) == ((0, 0, 0, 7), "incomplete")
    assert station.connector.commands().xlen(station.keys().of("outbox")) == 0
    assert [info.name for info in station.client.iter_jobs("ready", queue="mails")] == ["step"]


def test_a_clear_that_was_killed_is_told_of_by_the_next_one(station: Station, steps: Steps) -> None:
    batch([steps("a", delay="1h")], id="b").dispatch()
    station.client.run(cut(whole.clear(station.client.verbs, QUEUE), 2))
    assert (station.client.stats(QUEUE)[0].scheduled, find_batch("b").pending) == (0, 1)
    assert station.client.clear() == 0
    assert numbers(find_batch("b")) == (0, 0, 0, 1)


# -- an id that is taken when its turn comes -------------------------------------------------------------------------


def taken(station: Station, queue: str = QUEUE) -> None:
    """Another job has the id."""
    station.client.schedule("step", {"name": "other"}, id="mine", queue=queue, delay="1h")


def untouched(station: Station, queue: str = QUEUE) -> bool:
    info = station.job("mine", queue)
    return info.state is State.SCHEDULED and info.envelope is not None and b"other" in bytes(info.envelope.data)


@pytest.mark.parametrize("queue", [QUEUE, "mails"])
def test_a_chain_hears_that_the_id_of_a_link_is_taken(station: Station, steps: Steps, queue: str) -> None:
    taken(station, queue)
    link = steps("b", id="mine").on_queue(queue)
    chain(steps("a"), link, steps("c")).catch(steps("caught")).dispatch()
    with work(station):
        steps.until("caught")
        wait_until(lambda: "the id mine was taken" in station.said(), what="it was said")
    assert steps.counts == {"a": 1, "caught": 1}
    assert steps.headers("caught")["delayq-failed-id"] == "mine"
    assert untouched(station, queue)


@pytest.mark.parametrize("queue", [QUEUE, "mails"])
def test_a_batch_hears_that_the_id_of_a_later_link_is_taken(
    station: Station, steps: Steps, manager: Manager, queue: str
) -> None:
    slow = Slow(station)
    link = steps("b", id="mine").on_queue(queue)
    batch([chain(named("slow"), link, steps("c"))], id="b", finally_=steps("finally")).dispatch()
    with work(station):
        assert slow.started.wait(50)
        taken(station, queue)
        slow.go_on.set()
        info = finished("b")
        steps.until("finally")
    assert (numbers(info), info.state, steps.counts) == ((0, 1, 0, 2), "incomplete", {"finally": 1})
    station.client.batches.retry("b")
    assert untouched(station, queue)


def test_it_is_said_that_the_id_of_a_callback_is_taken(station: Station, steps: Steps) -> None:
    taken(station)
    batch([steps("a")], id="b", then=steps("then", id="mine"), finally_=steps("finally")).dispatch()
    with work(station):
        steps.until("a", "finally")
        wait_until(lambda: "the id mine was taken" in station.said(), what="it was said")
    assert (numbers(find_batch("b")), steps.counts) == ((0, 1, 0, 0), {"a": 1, "finally": 1})
    assert untouched(station)


def test_a_link_that_was_sent_before_is_not_taken_by_itself(station: Station, steps: Steps) -> None:
    """Redis has forgotten that it was sent, and it is there."""
    commands = station.connector.commands()
    pending = chain(steps("a"), steps("b", id="mine").on_queue("mails").delay("1h"), steps("c")).catch(steps("caught"))
    pending.dispatch()
    consumer = station.driver.consumer("dq:there:1:x", [QUEUE])
    (delivery,) = consumer.fetch([], 1).deliveries
    assert consumer.settle([Settlement(delivery, Ack())]).settled == [True]
    outbox = station.keys().of("outbox")
    entries: Any = commands.xrange(outbox)
    ((_, fields),) = entries
    with work(station):
        station.until("mine", State.SCHEDULED, queue="mails")
        wait_until(lambda: not commands.xlen(outbox), what="it is carried")
        for key in commands.scan_iter("*:once:*"):
            commands.delete(key)
        commands.xadd(outbox, fields)
        wait_until(lambda: not commands.xlen(outbox), what="it is carried again")
        wait_until(lambda: station.idle([QUEUE]), what="nothing else is to be done")
    assert (steps.counts, "was taken" in station.said()) == ({}, False)
    assert station.state("mine", "mails") is State.SCHEDULED
