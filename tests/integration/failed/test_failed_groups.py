"""Failed jobs by error: counted over queues and shards, and one group retried alone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from delayq import AsyncDelayQ, DelayQ, InvalidInput, State
from delayq.core.failure_groups import FailureGroups
from tests.support.failing import fail_job


@pytest.fixture
def q(redis_url: str) -> Iterator[DelayQ]:
    with DelayQ(redis_url) as client:
        yield client


def told(found: FailureGroups) -> list[tuple[str, str, int]]:
    return [(group.name, group.message, group.count) for group in found.groups]


@pytest.fixture
def four(q: DelayQ) -> DelayQ:
    fail_job(q, "a", "no stock of 41")
    fail_job(q, "b", "no stock of 7")
    fail_job(q, "c", "no money")
    fail_job(q, "d", "no stock of 9", queue="mail", name="mail.send")
    return q


def test_groups_of_one_queue_and_of_all(four: DelayQ, redis_url: str) -> None:
    assert told(four.failed_groups("orders")) == [("order.close", "no stock of #", 2), ("order.close", "no money", 1)]
    found = four.failed_groups()
    assert (found.looked, found.cursor) == (4, "")
    assert sorted(told(found)) == sorted([*told(four.failed_groups("orders")), ("mail.send", "no stock of #", 1)])
    assert told(four.failed_groups(name="mail.*")) == [("mail.send", "no stock of #", 1)]
    assert four.failed_groups("orders").groups[0].sample.id == "b"

    async def other() -> FailureGroups:
        async with AsyncDelayQ(redis_url) as client:
            return await client.failed_groups("orders")

    assert told(asyncio.run(other())) == told(four.failed_groups("orders"))


def test_a_listing_looks_at_so_many_and_says_so(four: DelayQ) -> None:
    found = four.failed_groups("orders", looks=2)
    assert told(found) == [("order.close", "no money", 1), ("order.close", "no stock of #", 1)]
    assert (found.looked, bool(found.cursor)) == (2, True)
    with pytest.raises(InvalidInput, match="looks is 0"):
        four.failed_groups("orders", looks=0)


def test_one_group_is_retried_and_the_others_stay(four: DelayQ) -> None:
    signature = four.failed_groups("orders").groups[0].signature
    assert [info.id for info in four.iter_failed("orders", signature=signature)] == ["a", "b"]
    assert [one.id for one in four.retry_failed("orders", signature=signature)] == ["a", "b"]
    left = [info.id for info in four.iter_failed("orders")]
    assert left == ["c"]
    info = four.get("a", queue="orders")
    assert info is not None
    assert info.state is not State.FAILED
    with pytest.raises(InvalidInput, match="not a signature"):
        list(four.iter_failed("orders", signature="no"))


def test_groups_of_a_sharded_queue(q: DelayQ) -> None:
    q.queue_set("orders", shards=3)
    for number in range(6):
        q.schedule("order.close", delay="1h", id=f"s{number}", queue="orders")
        q.archive(f"s{number}", queue="orders", reason=f"closed on day {number}")
    [group] = q.failed_groups("orders").groups
    assert (group.count, group.message) == (6, "closed on day #")
    retried = {one.id for one in q.retry_failed("orders", signature=group.signature)}
    assert retried == {f"s{number}" for number in range(6)}
