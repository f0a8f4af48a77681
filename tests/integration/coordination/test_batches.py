"""Batches on a real server, run by a real worker that promotes and carries itself."""

from __future__ import annotations

from typing import Any

import pytest

from delayq import Conflict, InvalidInput, JobContext, SkipIfBatchCancelled
from delayq.core.batches import BatchInfo
from delayq.core.errors import BatchNotFound
from delayq.core.states import State
from delayq.jobs.batch import PendingBatch, afind_batch, batch, find_batch
from delayq.jobs.chain import chain
from delayq.jobs.dispatch import named
from delayq.jobs.middleware.forms import Next
from delayq.jobs.middleware.running_job import RunningJob
from delayq.jobs.plans import Member
from delayq.manager import Manager
from tests.support.station import QUEUE, Station
from tests.support.steps import QUEUES, Steps
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("manager")


@pytest.fixture
def steps(station: Station) -> Steps:
    return Steps(station)


def work(station: Station, **options: Any) -> Any:
    return station.working(queues=QUEUES, mover=True, **options)


def with_callbacks(pending: PendingBatch, steps: Steps) -> PendingBatch:
    pending = pending.before(steps("before")).then(steps("then")).catch(steps("catch"))
    return pending.finally_(steps("finally").on_queue("mails"))


def finished(station: Station, batch_id: str) -> BatchInfo:
    """The batch, once every member has ended and nothing is left to do."""
    wait_until(lambda: find_batch(batch_id).finished_ms, what="the batch has finished")
    return find_batch(batch_id)


def numbers(info: BatchInfo) -> tuple[int, int, int, int]:
    return info.pending, info.done, info.failed, info.skipped


def test_all_succeed(station: Station, steps: Steps) -> None:
    members = [steps(f"m{n}", queue=QUEUES[n % 3]) for n in range(9)]
    info = with_callbacks(batch(members, name="nine"), steps).dispatch()
    assert (numbers(info), info.name, info.state, info.progress) == ((9, 0, 0, 0), "nine", "running", 0)
    with work(station):
        steps.until("then", "finally")
        steps.quiet()
    assert steps.counts == dict.fromkeys([*(f"m{n}" for n in range(9)), "before", "then", "finally"], 1)
    info = find_batch(info.id)
    assert (numbers(info), info.state, info.progress) == ((0, 9, 0, 0), "finished", 100)
    told = {name: value for name, value in steps.headers("finally").items() if name.startswith("delayq-batch-")}
    assert told == {
        "delayq-batch-id": info.id,
        "delayq-batch-total": "9",
        "delayq-batch-done": "9",
        "delayq-batch-failed": "0",
        "delayq-batch-skipped": "0",
    }


def test_a_failure_cancels_what_has_not_started(station: Station, steps: Steps) -> None:
    waiting = [steps(f"w{n}", id=f"w{n}").delay("1h") for n in range(3)]
    info = with_callbacks(batch([steps("bad", "give up"), *waiting]), steps).dispatch()
    with work(station):
        steps.until("catch", "finally")
        steps.quiet()
    assert steps.counts == {"before": 1, "bad": 1, "catch": 1, "finally": 1}
    info = find_batch(info.id)
    assert (numbers(info), info.state) == ((0, 0, 1, 3), "failed")
    assert info.cancelled_ms is not None
    assert [station.state(f"w{n}") for n in range(3)] == [State.ABSENT] * 3


def test_failures_may_be_allowed_and_it_still_finishes(station: Station, steps: Steps) -> None:
    """Laravel never marks such a batch finished."""
    members = [steps("bad", "give up"), steps("worse", "give up"), *(steps(f"m{n}") for n in range(3))]
    info = with_callbacks(batch(members, allow_failures=True), steps).dispatch()
    with work(station):
        steps.until("catch", "finally")
        steps.quiet()
    assert steps.counts == dict.fromkeys(["before", "bad", "worse", "m0", "m1", "m2", "catch", "finally"], 1)
    info = find_batch(info.id)
    assert (numbers(info), info.cancelled_ms, info.state) == ((0, 3, 2, 0), None, "failed")


def test_retrying_what_failed_finishes_it_well(station: Station, steps: Steps) -> None:
    members = [steps("bad", "give up", id="bad-1"), steps("good")]
    info = with_callbacks(batch(members, allow_failures=True), steps).dispatch()
    with work(station):
        steps.until("finally")
        assert finished(station, info.id).failed == 1
        raw = station.job("bad-1").raw.replace(b"give up", b"nothing")
        station.connector.commands().hset(station.keys().of("jobs"), "bad-1", raw)
        assert station.client.batches.retry(info.id) == 1
        steps.until("then")
        steps.quiet()
    assert numbers(find_batch(info.id)) == (0, 2, 0, 0)
    assert steps.counts == {"before": 1, "bad": 2, "good": 1, "catch": 1, "then": 1, "finally": 2}


def test_each_link_of_a_chain_is_a_member(station: Station, steps: Steps) -> None:
    info = batch([[steps("a"), steps("b").on_queue("mails"), steps("c")], chain(steps("d"), steps("e"))]).dispatch()
    assert info.total == 5
    with work(station):
        info = finished(station, info.id)
        steps.quiet()
    assert (numbers(info), sorted(steps.ran)) == ((0, 5, 0, 0), ["a", "b", "c", "d", "e"])


def test_links_behind_a_failed_one_are_skipped(station: Station, steps: Steps) -> None:
    """Laravel's `finally` never comes then."""
    members: list[Member] = [[steps("a"), steps("bad", "give up", id="bad-1"), steps("c"), steps("d")], steps("e")]
    info = with_callbacks(batch(members, allow_failures=True), steps).dispatch()
    with work(station):
        steps.until("finally")
        assert numbers(finished(station, info.id)) == (0, 2, 1, 2)
        raw = station.job("bad-1").raw.replace(b"give up", b"nothing")
        station.connector.commands().hset(station.keys().of("jobs"), "bad-1", raw)
        station.client.retry("bad-1", queue=QUEUE)
        steps.until("then")
        steps.quiet()
    assert numbers(find_batch(info.id)) == (0, 5, 0, 0)
    assert (steps.counts["c"], steps.counts["d"], steps.counts["then"]) == (1, 1, 1)


def test_a_batch_in_a_batch_is_one_member(station: Station, steps: Steps) -> None:
    inner = batch([steps("i1"), batch([steps("ii1"), steps("ii2")], then=steps("innermost done"))], id="inner")
    info = with_callbacks(batch([inner, steps("o1")], id="outer"), steps).dispatch()
    assert info.total == 2
    with work(station):
        steps.until("then", "finally", "innermost done")
        steps.quiet()
    assert numbers(find_batch("outer")) == (0, 2, 0, 0)
    assert numbers(find_batch("inner")) == (0, 2, 0, 0)
    assert steps.counts["ii1"] == 1


def test_a_failure_inside_reaches_the_outer_one(station: Station, steps: Steps) -> None:
    inner = batch([steps("i1", "give up")], id="inner")
    with_callbacks(batch([inner, steps("o1").delay("1h")], id="outer"), steps).dispatch()
    with work(station):
        steps.until("catch", "finally")
        steps.quiet()
    assert numbers(find_batch("outer")) == (0, 0, 1, 1)


def test_progress_is_told_and_ends_at_the_total(station: Station, steps: Steps) -> None:
    info = batch([steps(f"m{n}") for n in range(5)], progress=steps("progress")).dispatch()
    with work(station):
        finished(station, info.id)
        steps.quiet()
    assert 1 <= steps.counts["progress"] <= 5
    assert steps.headers("progress")["delayq-batch-done"] == "5"


def test_a_member_may_add_more(station: Station, steps: Steps) -> None:
    def split(context: JobContext, depth: int) -> None:
        assert context.batch is not None
        context.batch.add(*(steps(f"{depth}.{n}") for n in range(2)))
        if depth < 2:
            context.batch.add(named("split", {"depth": depth + 1}))

    station.handles("split", split)
    info = batch([named("split", {"depth": 0})], then=steps("then")).dispatch()
    with work(station):
        steps.until("then")
        steps.quiet()
    assert numbers(find_batch(info.id)) == (0, 9, 0, 0)
    assert steps.ran.index("then") == len(steps.ran) - 1


def test_a_finished_or_cancelled_one_takes_no_more(station: Station, steps: Steps) -> None:
    info = batch([steps("a")]).dispatch()
    with work(station):
        finished(station, info.id)
        steps.quiet()
    with pytest.raises(Conflict, match="has finished"):
        station.client.batches.add(info.id, [])


def test_a_cancelled_one_ends_with_what_runs(station: Station, steps: Steps) -> None:
    started, go_on = station.flag(), station.flag()

    async def slow(context: JobContext) -> None:
        started.set()
        assert context.batch is not None
        while not go_on.is_set():
            await __import__("asyncio").sleep(0.01)
        assert await context.batch.acancelled()

    station.handles("slow", slow)
    info = with_callbacks(batch([named("slow"), *(steps(f"w{n}").delay("1h") for n in range(3))]), steps).dispatch()
    with work(station):
        assert started.wait(50)
        assert station.client.batches.cancel(info.id).state in ("cancelling", "cancelled")
        go_on.set()
        steps.until("finally")
        steps.quiet()
    info = find_batch(info.id)
    assert (numbers(info), info.state) == ((0, 1, 0, 3), "cancelled")
    assert steps.counts == {"before": 1, "finally": 1}


def test_an_empty_one_finishes_at_once(station: Station, steps: Steps) -> None:
    info = with_callbacks(batch(), steps).dispatch()
    assert info.finished_ms is not None
    with work(station):
        steps.until("then", "finally")


def test_the_same_batch_dispatched_again_is_the_same(station: Station, steps: Steps) -> None:
    pending = batch([steps(f"m{n}", id=f"m{n}") for n in range(3)], id="mine", then=steps("then", id="then-1"))
    pending.dispatch()
    pending.dispatch()
    with work(station):
        steps.until("then")
        pending.dispatch()
        steps.quiet()
    assert steps.counts == {"m0": 1, "m1": 1, "m2": 1, "then": 1}


def test_many_members_travel_in_chunks(station: Station, steps: Steps) -> None:
    info = batch([steps(f"m{n}") for n in range(1_200)], then=steps("then")).dispatch()
    assert info.total == 1_200
    with work(station):
        steps.until("then", timeout=30)
        steps.quiet()
    assert set(steps.counts.values()) == {1}
    assert numbers(find_batch(info.id)) == (0, 1_200, 0, 0)


def test_a_batch_that_is_not_there() -> None:
    with pytest.raises(BatchNotFound, match="no batch 'nobody'"):
        find_batch("nobody")


def test_a_name_that_is_no_name_is_refused(station: Station, steps: Steps) -> None:
    with pytest.raises(InvalidInput, match="cannot name a batch"):
        batch([steps("m")], name="x" * 256).dispatch()
    assert station.client.batches.list() == []


def test_a_member_with_a_unique_key_is_refused(station: Station, steps: Steps) -> None:
    with pytest.raises(InvalidInput, match="unique key"):
        batch([steps("a", unique="k")]).dispatch()
    assert station.client.queues() == []


def test_the_list_shows_the_newest_first(station: Station, steps: Steps) -> None:
    for number in range(3):
        batch([steps("m")], id=f"b{number}").dispatch()
    assert [info.id for info in station.client.batches.list(2)] == ["b2", "b1"]


async def test_it_may_be_awaited(station: Station, steps: Steps, manager: Manager) -> None:
    info = await batch([steps("a")], id="mine").adispatch()
    assert await afind_batch("mine") == info
    await manager.aclose()


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_members_of_a_cancelled_batch_may_be_skipped(station: Station, steps: Steps, kind: str) -> None:
    """The middleware asks where it stands: behind one, here, in which the batch is cancelled."""

    class Cancels:
        def handle(self, job: RunningJob, next: Next) -> Any:
            station.client.batches.cancel("mine")
            return next(job)

        async def ahandle(self, job: RunningJob, next: Next) -> Any:
            station.client.batches.cancel("mine")
            return await next(job)

    def plain() -> None:
        raise AssertionError("skipped")

    async def waiting() -> None:
        raise AssertionError("skipped")

    handler = plain if kind == "plain" else waiting
    station.handles("member", handler, middleware=[Cancels(), SkipIfBatchCancelled()])
    info = batch([named("member").having(id="m1")], id="mine").dispatch()
    with work(station):
        done = finished(station, info.id)
    assert (numbers(done), station.ends("m1")) == ((0, 1, 0, 0), ["done"])
