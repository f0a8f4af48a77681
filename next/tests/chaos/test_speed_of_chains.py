"""The speed of batches beside plain jobs in one run, and the time between two links of a chain.

The figures need an idle machine, so only `make chaos` takes them.
"""

import statistics
import time
from itertools import pairwise
from pathlib import Path

import pytest
import redis
from pydantic import SecretStr

from delayq import JobSpec, Manager, Settings, batch, chain, set_manager
from delayq.jobs.dispatch import _by_name
from tests.support.servers import private_server
from tests.support.topologies import lines
from tests.support.waiting import wait_until
from tests.support.workers import end_worker, workers_of

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]

MEMBERS = 10_000
LINKS = 300
META = "delayq:{q}:meta"

APP = """
import os, time
from delayq import job

log = os.open("log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

@job("nothing")
def nothing() -> None: ...

@job("stamp")
def stamp() -> None:
    os.write(log, f"{time.time()}\\n".encode())
"""


def test_members_of_a_batch_beside_plain_jobs(tmp_path: Path) -> None:
    with private_server() as url, redis.Redis.from_url(url, decode_responses=True) as server:
        manager = Manager(Settings(url=SecretStr(url), queue="q"))
        set_manager(manager)
        rates = {}
        try:
            for kind in ("plain", "members"):
                server.flushdb()
                if kind == "plain":
                    manager.connection().client.schedule_many([JobSpec(name="nothing", data={})] * MEMBERS)
                else:
                    batch([_by_name("nothing", {})] * MEMBERS, id="b1").dispatch()
                with workers_of(APP, tmp_path, url) as start:
                    worker = start("--queue", "q")
                    wait_until(lambda: acked(server) > 0)
                    began, before = time.monotonic(), acked(server)
                    wait_until(lambda: acked(server) == MEMBERS, patience=60)
                    rates[kind] = (MEMBERS - before) / (time.monotonic() - began)
                    ended = time.monotonic()
                    wait_until(lambda: server.xlen("delayq:{q}:outbox") == 0)
                    left = time.monotonic() - ended
                    end_worker(worker)
            info = manager.connection().client.batches.require("b1")
        finally:
            set_manager(None)
            manager.close()
    ratio = rates["members"] / rates["plain"]
    print(
        f"plain {rates['plain']:,.0f} jobs/s, members {rates['members']:,.0f}, ratio {ratio:.2f}; outbox {left:.2f} s"
    )
    assert (info.state, info.succeeded) == ("finished", MEMBERS)
    assert ratio >= 0.3
    assert left <= 2.0


def test_the_time_between_two_links(tmp_path: Path) -> None:
    with private_server() as url:
        manager = Manager(Settings(url=SecretStr(url), queue="q"))
        set_manager(manager)
        try:
            with workers_of(APP, tmp_path, url) as start:
                start("--queue", "q")
                chain(*[_by_name("stamp", {})] * LINKS).dispatch()
                wait_until(lambda: len(lines(tmp_path / "log")) == LINKS, patience=60)
        finally:
            set_manager(None)
            manager.close()
    at = [float(line) for line in lines(tmp_path / "log")]
    gaps = sorted((later - earlier) * 1000 for earlier, later in pairwise(at))
    p99 = gaps[int(len(gaps) * 0.99)]
    print(f"next link: p50 {statistics.median(gaps):.2f} ms, p99 {p99:.2f} ms")
    assert statistics.median(gaps) <= 5.0
    assert p99 <= 20.0


def acked(server: redis.Redis) -> int:
    return int(server.hget(META, "acked_total") or 0)
