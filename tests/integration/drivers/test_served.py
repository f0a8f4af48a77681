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


def test_jobs_run_and_those_that_fail_are_kept(either: Site) -> None:
    ids, [bad] = either.schedule("good", 12), either.schedule("bad")
    with either.open(threads=2, tries=2, backoff_ms=0) as shop:
        either.until("end", ids)
        kept = either.until_failed(bad)
        assert (kept.failure.message, kept.failure.attempt) == ("bad", 2)
        wait_until(lambda: sum(filter(None, either.broker.depth("default")[:3])) == 0, what="the queue is empty")
        shop.signal(signal.SIGTERM)
        assert shop.ended() == 0
    starts = either.times("start")
    assert {starts[job] for job in ids} == {1}
    assert starts[bad] == 2


def test_a_job_longer_than_its_ttr_runs_once(site: Callable[[dict[str, Any]], Site], beanstalkd: Beanstalkd) -> None:
    """A second child waits for work all the while."""
    here = site({"driver": "beanstalkd", "url": f"beanstalkd://{beanstalkd.address}", "lease": "2s"})
    [job] = here.schedule("good", seconds=4.5)
    with here.open(processes=2, stop_when_empty=True) as shop:
        assert shop.ended(timeout=60) == 0
    assert (here.times("start")[job], here.times("end")[job]) == (1, 1)


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


def test_a_worker_that_is_refused_says_so_before_it_makes_children(
    site: Callable[[dict[str, Any]], Site], sqs_server: Sqs
) -> None:
    here = site(dict(sqs_server.options))
    with here.open(queues=["nobody-made-it"]) as shop:
        assert shop.ended() == 1  # the program raises; the command line says it in a sentence
    assert "has no queue 'nobody-made-it'" in here.said()
    assert "died" not in here.said()
