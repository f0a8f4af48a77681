"""What a batch must survive: a retry or an `add` that is cut off anywhere, a retry beside a cancel, stolen ids."""

from __future__ import annotations

import os
import signal
from functools import partial

import pytest

from delayq import JobContext
from delayq.core.errors import Conflict, InvalidInput
from delayq.core.states import State
from delayq.jobs.batch import batch, find_batch
from delayq.jobs.chain import chain
from delayq.jobs.dispatch import named
from delayq.jobs.links import NOWHERE, Builder
from delayq.jobs.plans import Member
from delayq.manager import Manager
from delayq.redis import follow_verbs
from delayq.redis.batch_verbs import BatchVerbs
from delayq.redis.follow_verbs import FollowVerbs
from tests.support.members import Flaky, Slow, cut, finished, numbers, work
from tests.support.station import QUEUE, Station
from tests.support.steps import Steps
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("manager")


@pytest.fixture
def steps(station: Station) -> Steps:
    return Steps(station)


# -- cut off ---------------------------------------------------------------------------------------------------------


def test_a_retry_may_be_cut_off_anywhere(station: Station, steps: Steps) -> None:
    """Each batch's first retry is left after so many calls; asked for again, it goes through."""
    flaky, names = Flaky(station), [f"b{after}" for after in range(1, 14)]
    for name in names:
        batch([flaky(f"{name}.m{n}") for n in range(2)], id=name, allow_failures=True).dispatch()
    with work(station):
        for name in names:
            assert numbers(finished(name)) == (0, 0, 2, 0)
        steps.quiet()
        flaky.mend()
        verbs = BatchVerbs(station.client.verbs)
        for after, name in enumerate(names, 1):
            station.client.run(cut(verbs.retry(name), after))
            station.client.batches.retry(name)
        wait_until(lambda: all(find_batch(name).done == 2 for name in names), what="all members have run")
        steps.quiet()
    assert {name: find_batch(name).state for name in names} == dict.fromkeys(names, "finished")


def test_a_full_server_refuses_a_retry_whole(station: Station, steps: Steps) -> None:
    flaky, commands = Flaky(station), station.connector.commands()
    batch([flaky("m")], id="b", then=steps("then")).dispatch()
    with work(station):
        assert finished("b").failed == 1
        steps.quiet()
    flaky.mend()
    commands.config_set("maxmemory", 1)
    try:
        with pytest.raises(Exception, match="memory limit"):
            station.client.batches.retry("b")
    finally:
        commands.config_set("maxmemory", 0)
    assert (numbers(find_batch("b")), find_batch("b").state) == ((0, 0, 1, 0), "failed")
    assert station.client.batches.retry("b") == 1
    with work(station):
        steps.until("then")


@pytest.mark.parametrize("how", ["killed", "raised"])
def test_a_job_that_is_stopped_while_it_adds_adds_each_once(station: Station, steps: Steps, how: str) -> None:
    """Its members are known to the batch by then, and none has been sent."""
    cut_off = station.flag()

    def stopped(*_: object, **__: object) -> None:
        cut_off.set()
        if how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        raise ConnectionError("it is gone")

    def add(context: JobContext) -> None:
        assert context.batch is not None
        context.batch.add(steps("early"))
        with pytest.MonkeyPatch.context() as patch:
            if not cut_off.is_set():
                patch.setattr(follow_verbs, "put", stopped)
            context.batch.add(steps("a"), chain(steps("b"), steps("c")), batch([steps("d")]))
        context.batch.add(steps("e"))

    station.handles("add", add)
    batch([named("add")], id="b", then=steps("then")).dispatch()
    with work(station):
        steps.until("then")
        steps.quiet()
    assert numbers(find_batch("b")) == (0, 7, 0, 0)
    assert steps.counts == dict.fromkeys(("early", "a", "b", "c", "d", "e", "then"), 1)


# -- a retry beside a cancel -----------------------------------------------------------------------------------------


def test_a_retry_brings_back_nothing_that_was_skipped(station: Station, steps: Steps) -> None:
    """The later link is still to come when the batch goes on; it was skipped, and nothing runs after `finally_`."""
    slow, flaky = Slow(station), Flaky(station)
    story: list[Member] = [flaky("bad"), chain(named("slow"), steps("skipped"))]
    batch(story, id="b", then=steps("then"), finally_=steps("finally")).dispatch()
    with work(station, threads=2):
        assert slow.started.wait(50)
        wait_until(lambda: find_batch("b").skipped, what="the failure has skipped the link")
        flaky.mend()
        assert station.client.batches.retry("b") == 1
        wait_until(lambda: find_batch("b").done, what="it has run again")
        slow.go_on.set()
        steps.until("finally")
        steps.quiet()
    assert (numbers(find_batch("b")), find_batch("b").state) == ((0, 2, 0, 1), "incomplete")
    assert steps.counts == {"finally": 1}


def test_what_ran_when_the_cancel_was_lifted_goes_on(station: Station, steps: Steps) -> None:
    slow, flaky = Slow(station), Flaky(station)
    members = [flaky("bad"), named("slow", {"fails": True}).having(tries=2, backoff="1ms")]
    batch(members, id="b", allow_failures=True).dispatch()
    with work(station, threads=2):
        assert slow.started.wait(50)
        wait_until(lambda: find_batch("b").failed, what="the other one has failed")
        station.client.batches.cancel("b")
        flaky.mend()
        station.client.batches.retry("b")
        slow.go_on.set()
        finished("b")
    assert (numbers(find_batch("b")), slow.attempts[:]) == ((0, 1, 1, 0), [1, 2])


def test_a_cancel_holds_for_a_retry_that_did_not_know_of_it(station: Station, steps: Steps) -> None:
    """The retry is cut off behind its move; the cancel comes before the batch has heard of it."""
    flaky, verbs = Flaky(station), BatchVerbs(station.client.verbs)
    batch([flaky("m")], id="b", allow_failures=True).dispatch()
    with work(station):
        finished("b")
        steps.quiet()
    flaky.mend()
    for after in sorted([*range(1, 20)] * 2):  # twice each: what a client has asked once it need not ask again
        if station.state("m") is State.FAILED:
            station.client.run(cut(verbs.retry("b"), after))
    assert (station.state("m"), find_batch("b").failed) == (State.SCHEDULED, 1)
    station.client.batches.cancel("b")
    with work(station):
        wait_until(lambda: station.state("m") is State.ABSENT, what="it has been called off")
        steps.quiet()
    assert (numbers(find_batch("b")), flaky.started[:]) == ((0, 0, 0, 1), ["m"])


def _ran(steps: Steps, name: str, times: int) -> bool:
    return steps.counts[name] == times


# -- once in every round ---------------------------------------------------------------------------------------------


def test_callbacks_that_are_kept_are_sent_again_after_a_retry(station: Station, steps: Steps) -> None:
    flaky = Flaky(station)
    kept = {name: steps(name, id=name, retention="1h") for name in ("catch", "finally_", "then")}
    batch([flaky("m")], id="b", **kept).dispatch()  # type: ignore[arg-type]
    with work(station):
        for rounds in (1, 2):
            wait_until(partial(_ran, steps, "finally_", rounds), what=f"round {rounds} has ended")
            steps.quiet()
            assert steps.counts == {"catch": rounds, "finally_": rounds}
            if rounds == 2:
                flaky.mend()
            station.client.batches.retry("b")
        steps.until("then")
        steps.quiet()
    assert steps.counts == {"catch": 2, "finally_": 3, "then": 1}


@pytest.mark.parametrize("queue", [QUEUE, "mails"])
def test_the_catch_of_a_chain_is_sent_again_after_a_retry(station: Station, steps: Steps, queue: str) -> None:
    flaky = Flaky(station)
    first = chain(steps("a"), flaky("bad"), steps("c"))
    first.catch(steps("catch", retention="1h").on_queue(queue), steps("waits", delay="1h")).dispatch()
    with work(station):
        for rounds in (1, 2):
            wait_until(partial(_ran, steps, "catch", rounds), what=f"it was caught {rounds} times")
            wait_until(lambda: station.state("bad") is State.FAILED, what="the link has failed")
            if rounds == 2:
                flaky.mend()
            station.client.retry("bad", queue=QUEUE)
        steps.until("c")
    assert steps.counts == {"a": 1, "catch": 2, "c": 1}
    assert station.client.stats(QUEUE)[0].scheduled == 2


# -- ids of others ---------------------------------------------------------------------------------------------------


def test_an_id_that_another_job_has_is_refused_before_anything_is_sent(station: Station, steps: Steps) -> None:
    station.client.schedule("step", {"name": "other"}, id="mine", delay="1h")
    for members in ([steps("a"), steps("b", id="mine")], [chain(steps("a"), steps("b", id="mine"))]):
        with pytest.raises(Conflict, match="'mine' is taken by another job in the queue 'orders'"):
            batch(members, id="b").dispatch()
    with pytest.raises(InvalidInput, match="'two' is given to two members"):
        batch([steps("a", id="two"), batch([steps("b", id="two")])], id="b").dispatch()
    assert station.client.batches.list() == []
    assert station.client.stats(QUEUE)[0].scheduled == 1


def test_an_id_that_is_taken_meanwhile_is_another_jobs_all_the_same(
    station: Station, steps: Steps, manager: Manager
) -> None:
    """It is taken between the question and the sending; the batch goes on without it, and never touches that job."""
    plan = batch([steps("a"), steps("b", id="mine")], id="b", then=steps("then")).plan(Builder(manager), NOWHERE, None)
    station.client.schedule("step", {"name": "other"}, id="mine", delay="1h")
    station.client.run(FollowVerbs(station.client.verbs).open(plan))
    assert numbers(find_batch("b")) == (1, 0, 0, 1)
    station.client.batches.cancel("b")
    assert (numbers(find_batch("b")), find_batch("b").state) == ((0, 0, 0, 2), "cancelled")
    assert station.job("mine").state is State.SCHEDULED


def test_members_that_are_kept_longer_than_their_batch_count_when_it_is_begun_anew(
    station: Station, steps: Steps
) -> None:
    flaky, commands = Flaky(station), station.connector.commands()
    again = batch([steps("a", retention="1h"), flaky("bad")], id="b", allow_failures=True)
    again.dispatch()
    with work(station):
        finished("b")
        steps.quiet()
        for key in (*commands.scan_iter("delayq:{batch:b}:*"), *commands.scan_iter("*:once:*")):
            commands.delete(key)
        again.dispatch()
        assert numbers(finished("b")) == (0, 1, 1, 0)


# -- without a worker ------------------------------------------------------------------------------------------------


def test_a_member_cancelled_where_nobody_works_is_heard_of_at_once(station: Station, steps: Steps) -> None:
    members = [chain(steps("a", id="a", queue="nobody", delay="1h"), steps("b"))]
    batch(members, id="b", finally_=steps("finally", delay="1h")).dispatch()
    station.client.cancel("a", queue="nobody")
    assert (numbers(find_batch("b")), find_batch("b").state) == ((0, 0, 0, 2), "incomplete")
    assert [info.name for info in station.client.iter_jobs("scheduled")] == ["step"]
