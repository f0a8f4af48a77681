"""archive: a waiting job goes among the failed, and what follows a failure follows."""

from __future__ import annotations

import pytest

from delayq import AsyncDelayQ, DelayQ, InvalidInput, JobRef
from delayq.core.states import Answer, State
from delayq.jobs.batch import batch, find_batch
from delayq.jobs.chain import chain
from delayq.manager import Manager
from tests.support.station import QUEUE, Station
from tests.support.steps import QUEUES, Steps


def test_a_waiting_job_is_kept_among_the_failed_with_the_reason(redis_url: str) -> None:
    with DelayQ(redis_url) as q:
        q.schedule("order.close", {"n": 1}, id="a", delay="1h")
        assert q.archive("a", reason="the shop is closed") is Answer.ARCHIVED
        info = q.get("a")
        assert info is not None
        assert info.state is State.FAILED
        assert info.failure is not None
        assert (info.failure.type, info.failure.message) == ("Archived", "the shop is closed")
        assert q.archive("a") is Answer.FAILED
        assert q.retry("a").outcome == "scheduled"
        assert q.archive("nobody") is Answer.UNKNOWN
        with pytest.raises(InvalidInput, match="reason"):
            q.archive("a", reason="x" * 501)


def test_it_frees_the_unique_key_which_a_retry_takes_again(redis_url: str) -> None:
    with DelayQ(redis_url) as q:
        q.schedule("order.close", id="a", delay="1h", unique="k")
        assert q.archive("a") is Answer.ARCHIVED
        assert q.schedule("order.close", id="b", delay="1h", unique="k").id == "b"


def test_all_shards_are_looked_into(redis_url: str) -> None:
    with DelayQ(redis_url) as q:
        q.queue_set("orders", shards=4)
        ids = [q.schedule("order.close", queue="orders", delay="1h").id for _ in range(8)]
        assert {q.archive(one, queue="orders") for one in ids} == {Answer.ARCHIVED}
        assert [(one.scheduled, one.failed) for one in q.stats("orders")] == [(0, 8)]


async def test_the_async_client_does_the_same(redis_url: str) -> None:
    async with AsyncDelayQ(redis_url) as q:
        await q.schedule("order.close", id="a", delay="1h")
        assert await q.archive("a", reason="no") is Answer.ARCHIVED
        assert await q.archive("a", reason="no") is Answer.FAILED


@pytest.fixture
def steps(station: Station, manager: Manager) -> Steps:
    return Steps(station)


def test_an_archived_link_ends_its_chain_as_a_failure(station: Station, steps: Steps) -> None:
    first = chain(steps("a", delay="1h"), steps("b")).catch(steps("sorry")).dispatch()
    assert isinstance(first, JobRef)
    assert station.client.archive(first.id, queue=first.queue) is Answer.ARCHIVED
    with station.working(queues=QUEUES, mover=True):
        steps.until("sorry")
        station.client.retry(first.id, queue=first.queue)
        steps.until("b")
    assert steps.ran == ["sorry", "a", "b"]


def test_an_archived_member_counts_as_failed_in_its_batch(station: Station, steps: Steps) -> None:
    info = batch([steps("a", delay="1h"), steps("b", delay="1h")], allow_failures=True).dispatch()
    waiting = next(station.client.iter_jobs(State.SCHEDULED, queue=QUEUE))
    assert station.client.archive(waiting.id, queue=QUEUE) is Answer.ARCHIVED
    found = find_batch(info.id)
    assert (found.failed, found.skipped, found.pending) == (1, 0, 1)
