"""Operations on many failed jobs, each test run with both clients."""

import time
from typing import Any

import pytest
import redis

from delayq import InvalidInput, PayloadLost
from delayq.core.failed import spacing


@pytest.fixture
def failed(client: Any) -> Any:
    """A client whose queue `orders` has five failed jobs, one of them with another name."""
    for n in range(4):
        client.schedule("order.close", id=f"job-{n}", queue="orders", delay="1h")
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
