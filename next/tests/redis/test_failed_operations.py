"""Operations on many failed jobs, each test run with both clients."""

import time
from typing import Any

import pytest
import redis

from delayq import InvalidInput, JobSpec, PayloadLost
from delayq.core.failed import spacing


@pytest.fixture
def failed(client: Any) -> Any:
    """A client whose queue `orders` has five failed jobs, one of them with another name."""
    for n in range(4):
        client.schedule("order.close", id=f"job-{n}", queue="orders", delay="1h", tags=["shop"])
    client.schedule("mail", id="mail", queue="orders", delay="1h")
    for id in ("job-2", "job-0", "mail", "job-1", "job-3"):
        client.archive(id, queue="orders")
        time.sleep(0.002)
    return client


def test_failed_jobs_are_listed_in_the_order_in_which_they_failed(failed: Any) -> None:
    assert [job.id for job in failed.iter_failed("orders")] == ["job-2", "job-0", "mail", "job-1", "job-3"]


def test_failed_jobs_are_chosen_by_name_and_time(failed: Any) -> None:
    assert [job.id for job in failed.iter_failed("orders", name="order.*")] == ["job-2", "job-0", "job-1", "job-3"]
    third_ms = failed.get("mail", queue="orders").failed_ms
    moment = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(third_ms / 1000))}.{third_ms % 1000:03}Z"
    assert [job.id for job in failed.iter_failed("orders", since=moment)] == ["mail", "job-1", "job-3"]
    assert [job.id for job in failed.iter_failed("orders", until=moment)] == ["job-2", "job-0", "mail"]
    assert list(failed.iter_failed("orders", until="1h")) == []


def test_failed_jobs_are_chosen_by_tag(failed: Any) -> None:
    assert [job.id for job in failed.iter_failed("orders", tag="shop")] == ["job-2", "job-0", "job-1", "job-3"]
    assert [group.count for group in failed.failed_groups("orders", tag="shop").groups] == [4]
    assert list(failed.retry_failed("orders", tag="other")) == []
    assert [answer.id for answer in failed.retry_failed("orders", tag="shop", name="*")] == [
        *("job-2", "job-0", "job-1", "job-3")
    ]


def test_jobs_that_fail_meanwhile_are_left_out(failed: Any) -> None:
    seen = []
    for job in failed.iter_failed("orders"):
        seen.append(job.id)
        time.sleep(0.002)
        failed.schedule("late", id=f"late-{job.id}", queue="orders", delay="1h")
        failed.archive(f"late-{job.id}", queue="orders")
    assert len(seen) == 5


def test_failed_jobs_are_retried(failed: Any, server: redis.Redis) -> None:
    server.hdel("test:{orders}:jobs", "job-0")
    answers = list(failed.retry_failed("orders"))
    assert [answer.id for answer in answers] == ["job-2", "job-0", "mail", "job-1", "job-3"]
    assert [answer.id for answer in answers if isinstance(answer.error, PayloadLost)] == ["job-0"]
    (stats,) = failed.stats("orders")
    assert (stats.scheduled, stats.failed) == (4, 1)


def test_failed_jobs_are_retried_at_a_rate(failed: Any) -> None:
    started = time.monotonic()
    assert len(list(failed.retry_failed("orders", rate="20/s"))) == 5
    assert time.monotonic() - started >= 4 / 20


def test_failed_jobs_are_forgotten_by_age(failed: Any) -> None:
    assert failed.prune_failed("orders", older="1h") == 0
    assert failed.prune_failed("orders", older="0s") == 5
    assert failed.get("mail", queue="orders") is None


def test_bounds_and_rates_that_mean_nothing_are_refused(failed: Any) -> None:
    for wrong in ({"since": "1h", "until": "2h"}, {"since": "yesterday"}, {"until": "2026-11-21T15:00"}):
        with pytest.raises(InvalidInput):
            list(failed.iter_failed("orders", **wrong))
    for rate in ("10", "0/s", "10/d", "-1/s", ""):
        with pytest.raises(InvalidInput):
            list(failed.retry_failed("orders", rate=rate))


@pytest.mark.parametrize(("rate", "seconds"), [(None, 0), ("10/s", 0.1), ("600/m", 0.1), ("1/h", 3600)])
def test_a_rate_is_a_time_between_two_jobs(rate: str | None, seconds: float) -> None:
    assert spacing(rate) == seconds


@pytest.fixture
def grouped(client: Any) -> Any:
    """A client whose queue `orders` has three failed jobs: two with the same error but for its details."""
    for id, reason in (("a", "no order 41"), ("b", "the bank is closed"), ("c", "no order 42")):
        client.schedule("order.close", id=id, queue="orders", delay="1h")
        client.archive(id, queue="orders", reason=reason)
        time.sleep(0.002)
    return client


def test_failed_jobs_are_listed_with_their_failures(grouped: Any) -> None:
    assert [job.failure.message for job in grouped.iter_failed("orders")] == [
        "no order 41",
        "the bank is closed",
        "no order 42",
    ]


def test_failed_jobs_are_grouped_by_what_went_wrong(grouped: Any) -> None:
    found = grouped.failed_groups("orders")
    assert (found.looked, found.is_complete) == (3, True)
    large, small = found.groups
    assert (large.name, large.type, large.message, large.count) == ("order.close", "Archived", "no order #", 2)
    assert (large.sample_id, large.sample_queue, large.queues) == ("c", "orders", ["orders"])
    assert large.first_ms < small.first_ms < large.last_ms
    part = grouped.failed_groups("orders", limit=2)
    assert (part.looked, part.is_complete, [group.count for group in part.groups]) == (2, False, [1, 1])
    assert grouped.failed_groups("orders", name="mail").groups == []


def test_a_group_is_chosen_by_its_signature(grouped: Any) -> None:
    signature = grouped.failed_groups("orders").groups[0].signature
    assert [job.id for job in grouped.iter_failed("orders", signature=signature)] == ["a", "c"]
    assert [answer.id for answer in grouped.retry_failed("orders", signature=signature)] == ["a", "c"]
    assert [job.id for job in grouped.iter_failed("orders")] == ["b"]
    with pytest.raises(InvalidInput, match="signature 'x' is not a signature"):
        list(grouped.iter_failed("orders", signature="x"))


def test_more_failed_jobs_than_one_page_are_read(client: Any, server: redis.Redis) -> None:
    client.schedule_many([JobSpec(name="n", id=f"job-{n}", queue="orders", delay="1h") for n in range(620)])
    with server.pipeline() as pipe:
        for n in range(620):
            pipe.zrem("test:{orders}:scheduled", f"job-{n}")
            pipe.zadd("test:{orders}:failed", {f"job-{n}": 1_000 + n})
            pipe.hset("test:{orders}:errors", f"job-{n}", '{"type":"E","message":"m"}')
        pipe.execute()
    found = list(client.iter_failed("orders"))
    assert [job.id for job in found] == [f"job-{n}" for n in range(620)]
    assert all(job.failure.type == "E" for job in found)
