"""A supervisor and its children over beanstalkd and SQS: as they work over Redis."""

from __future__ import annotations

import signal
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.beanstalkd import Beanstalkd
from tests.support.serving import Site
from tests.support.sqs import Sqs
from tests.support.waiting import wait_until


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Callable[[dict[str, Any]], Site]]:
    sites: list[Site] = []

    def make(connection: dict[str, Any]) -> Site:
        sites.append(Site(connection, tmp_path))
        return sites[-1]

    yield make
    for one in sites:
        one.close()


@pytest.fixture(scope="session", params=["beanstalkd", "sqs"])
def connection(request: pytest.FixtureRequest) -> dict[str, Any]:
    """One to a server of each kind, with a lease of two or three seconds."""
    if request.param == "beanstalkd":
        server: Beanstalkd = request.getfixturevalue("beanstalkd_of_the_suite")
        return {"driver": "beanstalkd", "url": f"beanstalkd://{server.address}", "lease": "2s"}
    sqs: Sqs = request.getfixturevalue("sqs_server")
    return {**sqs.options, "lease": "3s", "create": True}


@pytest.fixture
def either(connection: dict[str, Any], site: Callable[[dict[str, Any]], Site]) -> Site:
    """A site on each of them, with queues of its own."""
    return site({**connection, "prefix": f"t{uuid.uuid4().hex[:8]}-"})


def test_jobs_run_and_are_gone(either: Site) -> None:
    ids = either.schedule("good", 12)
    with either.open(threads=2) as shop:
        either.until("end", ids)
        wait_until(lambda: sum(filter(None, either.broker.depth("default")[:3])) == 0, what="the queue is empty")
        shop.signal(signal.SIGTERM)
        assert shop.ended() == 0
    assert set(either.times("start").values()) == {1}


def test_a_job_longer_than_its_lease_runs_once(either: Site) -> None:
    """The lease is two or three seconds; a second child waits for work all the while."""
    [job] = either.schedule("good", seconds=4.5)
    with either.open(processes=2, stop_when_empty=True) as shop:
        assert shop.ended(timeout=60) == 0
    assert (either.times("start")[job], either.times("end")[job]) == (1, 1)


def test_a_failing_job_is_tried_again_and_kept_among_the_failed(either: Site) -> None:
    [job] = either.schedule("bad")
    with either.open(tries=2, backoff_ms=0):
        kept = either.until_failed(job)
        assert (kept.failure.message, kept.failure.attempt) == ("bad", 2)
        wait_until(lambda: sum(filter(None, either.broker.depth("default")[:3])) == 0, what="the queue is empty")
    assert either.times("start")[job] == 2


def test_a_job_that_kills_its_process_fails_after_four_of_them(either: Site) -> None:
    [job], others = either.schedule("kill_self"), either.schedule("good", 3)
    with either.open():
        assert "vanished" in either.until_failed(job).failure.message
        either.until("end", others)
    assert either.times("start")[job] == 4


def test_sqs_keeps_the_lease_of_a_handler_that_holds_the_interpreters_lock(
    site: Callable[[dict[str, Any]], Site], sqs_server: Sqs
) -> None:
    """The supervisor renews, from its own process."""
    here = site({**sqs_server.options, "lease": "2s", "create": True, "prefix": "locked-"})
    [job] = here.schedule("hold_the_lock", seconds=4)
    with here.open(processes=2):
        here.until("end", [job])
    assert here.times("start")[job] == 1
