"""Batches whose ids are another batch's: refused where somebody asks, told of where their turn comes; none waits."""

from __future__ import annotations

from typing import Any

import pytest

from delayq.core.errors import Conflict, InvalidInput
from delayq.jobs.batch import batch, find_batch
from delayq.jobs.chain import chain
from delayq.jobs.dispatch import named
from delayq.jobs.links import NOWHERE, Builder
from delayq.jobs.plans import Member
from delayq.manager import Manager
from delayq.redis.batch_verbs import BatchVerbs
from delayq.redis.follow_verbs import FollowVerbs
from delayq.redis.verbs import Flow
from tests.support.members import Slow, cut, finished, numbers, work
from tests.support.station import QUEUE, Station
from tests.support.steps import QUEUES, Steps
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("manager")


@pytest.fixture
def steps(station: Station) -> Steps:
    return Steps(station)


def another(steps: Steps) -> None:
    """Somebody else's batch of that id, which goes on."""
    batch([steps("hers", delay="1h")], id="mine").dispatch()


def untouched() -> bool:
    return numbers(find_batch("mine")) == (1, 0, 0, 0)


def carried(station: Station, hers: int = 1) -> None:
    """Nothing is left for a relay or a worker, but jobs of hers, which wait for their time."""
    keys, commands = [station.keys(queue) for queue in QUEUES], station.connector.commands()

    def left() -> int:
        return sum(commands.xlen(key.of("outbox")) + commands.hlen(key.of("entries")) for key in keys)

    wait_until(lambda: left() == 0 and station.client.stats(QUEUE)[0].scheduled == hers, what="all is carried")


def opening(station: Station, manager: Manager, members: list[Member], **options: Any) -> Flow[Any]:
    """As a dispatch, without its question whether ids are taken."""
    return FollowVerbs(station.client.verbs).open(batch(members, **options).plan(Builder(manager), NOWHERE, None))


def test_an_inner_batch_whose_id_another_one_has_is_refused_before_anything_is_sent(
    station: Station, steps: Steps
) -> None:
    another(steps)
    inner = batch([steps("a")], id="mine")
    given: list[list[Member]] = [[inner], [chain(steps("b"), inner)], [batch([inner])]]
    for members in given:
        with pytest.raises(Conflict, match="'mine' is taken by another batch"):
            batch(members, id="outer").dispatch()
    given = [[inner, inner], [batch([steps("a")], id="outer")], [steps("a", id="mine"), inner]]
    for twice in given:
        with pytest.raises(InvalidInput, match="is given to two members"):
            batch(twice, id="outer").dispatch()
    assert [info.id for info in station.client.batches.list()] == ["mine"]
    assert untouched()


def test_a_batch_whose_id_is_an_inner_one_s_is_refused(station: Station, steps: Steps) -> None:
    batch([batch([steps("a", delay="1h")], id="mine")], id="outer").dispatch()
    with pytest.raises(Conflict, match="'mine' is taken by another batch"):
        another(steps)
    with pytest.raises(Conflict, match="'mine' is taken by another batch"):
        batch([batch([steps("a")], id="mine")], id="other").dispatch()
    assert untouched()
    assert station.client.stats()[0].scheduled == 1


@pytest.mark.parametrize("begun", ["whole", "half"])
def test_an_inner_batch_whose_id_is_taken_when_its_turn_comes_is_skipped(
    station: Station, steps: Steps, manager: Manager, begun: str
) -> None:
    """Taken between the question and the opening; the other one, begun or half begun, gets no member of it."""
    plan = batch([steps("hers", delay="1h")], id="mine").plan(Builder(manager), NOWHERE, None)
    station.client.run(cut(BatchVerbs(station.client.verbs).open(plan), 99 if begun == "whole" else 3))
    members: list[Member] = [steps("a"), chain(batch([steps("b")], id="mine"), steps("c"))]
    station.client.run(opening(station, manager, members, id="outer", finally_=steps("finally")))
    with work(station):
        assert numbers(finished("outer")) == (0, 1, 0, 2)
        steps.until("finally")
        carried(station, hers=begun == "whole")
    assert (steps.counts, untouched()) == ({"a": 1, "finally": 1}, True)


@pytest.mark.parametrize("after", [0, 1])
def test_a_chain_hears_that_the_id_of_its_batch_is_taken(station: Station, steps: Steps, after: int) -> None:
    """Also of a last link, for which nothing of the chain is left to tell it from another one."""
    slow = Slow(station)
    rest = [steps("after")] * after
    chain(named("slow"), batch([steps("a")], id="mine"), *rest).catch(steps("caught")).dispatch()
    with work(station):
        assert slow.started.wait(50)
        another(steps)
        slow.go_on.set()
        steps.until("caught")
        carried(station)
        wait_until(lambda: "the batch mine does not begin" in station.said(), what="it was said")
    assert (steps.counts, untouched()) == ({"caught": 1}, True)
    assert steps.headers("caught")["delayq-failed-id"] == "mine"


def test_its_own_that_is_carried_twice_is_the_same_batch(station: Station, steps: Steps, manager: Manager) -> None:
    members: list[Member] = [chain(batch([steps("a")], id="inner"), steps("b")), batch([steps("c")], id="other")]
    for _ in range(2):
        station.client.run(opening(station, manager, members, id="outer"))
    batch(members, id="outer").dispatch()
    with work(station):
        assert numbers(finished("outer")) == (0, 3, 0, 0)
        steps.quiet()
    assert steps.counts == {"a": 1, "b": 1, "c": 1}


def test_a_batch_that_is_just_beginning_stays_on_the_list(station: Station, steps: Steps, manager: Manager) -> None:
    """Its name is there before it is; who lists meanwhile must not take that off."""
    plan = batch([steps("a")], id="b").plan(Builder(manager), NOWHERE, None)
    flow, answer, listed = FollowVerbs(station.client.verbs).open(plan), None, 0

    def looking() -> Flow[None]:
        nonlocal answer, listed
        while True:
            try:
                answer = yield flow.send(answer)
            except StopIteration:
                return
            listed += len((yield from BatchVerbs(station.client.verbs).list(50)))

    station.client.run(looking())
    assert listed > 0
    assert [info.id for info in station.client.batches.list()] == ["b"]


def test_one_that_is_long_gone_is_taken_off_the_list(station: Station, steps: Steps) -> None:
    commands = station.connector.commands()
    gone = {f"gone{n}": 1_000 + n for n in range(5)}
    batch([steps("a")], id="b").dispatch()
    commands.zadd("delayq:batches", gone)
    assert [info.id for info in station.client.batches.list(limit=2)] == ["b"]
    assert commands.zrange("delayq:batches", 0, -1) == [b"b"]
