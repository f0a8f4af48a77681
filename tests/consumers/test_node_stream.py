"""consumers/node_stream, as a process, against a real server: Node shares a queue with whoever else reads it."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from delayq.core.options import Options
from delayq.core.states import State
from delayq.drivers.redis_streams import RedisStreams
from delayq.redis.client import Client
from delayq.redis.connect import Connector
from tests.consumers.following import all_followed, linked_jobs
from tests.consumers.programs import ROOT, Program, running
from tests.support.node import SOURCE, node, node_folder
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(300)  # the first of them installs packages
LEASE_MS = 1_000
ROUNDS = 15 if os.environ.get("DELAYQ_CHAOS") == "full" else 1
OPTIONS = Options(queue="orders", lease_ms=LEASE_MS, max_recoveries=1_000)

Start = Callable[..., AbstractContextManager[Program]]


@pytest.fixture
def client(redis_url: str) -> Iterator[Client]:
    with closing(Connector(redis_url)) as connector:
        yield Client(connector, OPTIONS)


@pytest.fixture
def start(redis_url: str, tmp_path: Path) -> Iterator[Start]:
    with node_folder() as folder:

        @contextmanager
        def begin(*more: str) -> Iterator[Program]:
            words = [node(), str(folder / "consumer.mjs"), "--url", redis_url, "--queue", "orders", "--name", "node-1"]
            program = Program([*words, "--lua", str(ROOT / "scripts/lua"), *more], tmp_path, dict(os.environ))
            try:
                yield program
            finally:
                program.kill()

        yield begin


def state_of(client: Client, job_id: str) -> State | None:
    job = client.get(job_id)
    return job.state if job else None


def test_the_lock_file_names_no_registry_and_pins_everything() -> None:
    packages = json.loads((SOURCE / "package-lock.json").read_text())["packages"]
    pinned = {name: one for name, one in packages.items() if name}
    assert "node_modules/redis" in pinned
    assert not [name for name, one in pinned.items() if "resolved" in one]
    assert all(re.match(r"sha512-", one["integrity"]) for one in pinned.values())


@pytest.mark.parametrize("file", ["consumer.mjs", "script.mjs"])
def test_each_file_is_short_enough_to_be_read(file: str) -> None:
    assert len((SOURCE / file).read_text().splitlines()) <= 120


def test_it_settles_at_once_also_what_is_kept(client: Client, start: Start) -> None:
    client.schedule("order.close", {"order_id": 1, "text": "ä€"}, id="o-1")
    client.schedule("order.close", [2], id="o-2", retention="1h")
    with start() as consumer:
        wait_until(lambda: sorted(consumer.ids()) == ["o-1", "o-2"], what="both are handled")
        wait_until(lambda: state_of(client, "o-1") is None, what="o-1 is forgotten")
        wait_until(lambda: state_of(client, "o-2") is State.COMPLETED, what="o-2 is kept")
        handled = {line["id"]: line for line in consumer.lines}
        assert handled["o-1"] == {"id": "o-1", "name": "order.close", "data": {"order_id": 1, "text": "ä€"}}
        assert consumer.terminate() == 0, consumer.complaints


def test_a_chain_goes_on_and_a_batch_ends(client: Client, start: Start) -> None:
    batch_id, driver = linked_jobs(client), RedisStreams(client.connector, OPTIONS)
    with start() as consumer:
        wait_until(lambda: all_followed(client, driver, batch_id, consumer), what="all that follows is handled")
        assert sorted(consumer.ids()) == ["first", "m-1", "m-2", "second", "then"], consumer.complaints


@pytest.mark.timed
def test_long_work_keeps_its_lease(client: Client, redis_url: str, start: Start) -> None:
    client.schedule("order.close", {"seconds": 2 * LEASE_MS / 1000}, id="o-1")
    with closing(Connector(redis_url)) as connector, start() as consumer:
        driver, judged = RedisStreams(connector, OPTIONS), 0
        wait_until(lambda: consumer.ids() == ["o-1"], what="it is being handled")
        while (job := client.get("o-1")) and job.consumer:
            tick = driver.reclaim("orders")
            judged += tick.hold_ms == 0
            assert tick.reclaimed == 0
            time.sleep(LEASE_MS / 10_000)  # the janitor's tick; not a wait for anything
        assert judged > 2, "the janitor never dared to take anything back, so this test proved nothing"
        assert state_of(client, "o-1") is None
        assert consumer.ids() == ["o-1"]


def test_term_lets_it_finish(client: Client, start: Start) -> None:
    client.schedule("order.close", {"seconds": 1}, id="o-1")
    with start() as consumer:
        wait_until(lambda: consumer.ids() == ["o-1"], what="it is being handled")
        assert consumer.terminate() == 0, consumer.complaints
    assert state_of(client, "o-1") is None


def test_what_throws_is_left_for_delayq_and_the_rest_goes_on(client: Client, start: Start) -> None:
    client.schedule("order.close", {"seconds": "soon"}, id="o-1")
    client.schedule("order.close", id="o-2")
    with start() as consumer:
        wait_until(lambda: "left for delayq" in consumer.complaints, what="it says so")
        wait_until(lambda: state_of(client, "o-2") is None, what="the other is done")
        assert state_of(client, "o-1") is State.RESERVED


def test_it_waits_for_a_queue_that_never_had_a_job(client: Client, start: Start) -> None:
    with start() as consumer:
        wait_until(lambda: "NOGROUP" in consumer.complaints, what="it meets no group")
        client.schedule("order.close", id="o-1")
        wait_until(lambda: state_of(client, "o-1") is None, what="the job is done")


def test_after_a_kill_it_goes_on_with_what_it_held(client: Client, start: Start) -> None:
    client.schedule("order.close", {"seconds": 600}, id="o-1")
    with start() as first:
        wait_until(lambda: first.ids() == ["o-1"], what="it is being handled")
        first.kill()
    with start() as second:
        wait_until(lambda: second.ids() == ["o-1", "o-1"], what="it is handled again")


JOBS = """
import json, time
from delayq import JobContext, job

@job("order.close", queue="orders")
def close(seconds: float, context: JobContext) -> None:
    print(json.dumps({"id": context.id}), flush=True)
    time.sleep(seconds)
"""


class Feed:
    """Jobs, as many as are needed to keep both consumers busy."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.ids: list[str] = []

    def more(self) -> None:
        """Up to forty that wait or run."""
        if sum(self._counts()) < 40:
            new = [f"o-{len(self.ids) + number}" for number in range(20)]
            for job_id in new:
                self._client.schedule("order.close", {"seconds": 0.02}, id=job_id)
            self.ids += new

    def busy(self, program: Program) -> None:
        """Until it has handled some more, with more to do all the time."""
        before = len(program.ids())

        def did() -> bool:
            self.more()
            return len(program.ids()) >= before + 3

        wait_until(did, timeout=120.0, what="it works")

    def is_done(self) -> bool:
        return not any(self._counts())

    def _counts(self) -> Sequence[int]:
        [stats] = [one for one in self._client.stats() if one.queue == "orders"]
        return stats.scheduled, stats.ready, stats.reserved


@pytest.mark.chaos
def test_node_and_python_share_a_queue_and_nothing_is_lost_when_either_is_killed(
    client: Client, redis_url: str, start: Start, tmp_path: Path
) -> None:
    (tmp_path / "shared.py").write_text(JOBS)
    home = tmp_path / "python"
    home.mkdir()
    work = ["-m", "delayq", "work", "--app", "shared", "--queue", "orders", "--quiet"]
    environ = {
        "DELAYQ_URL": redis_url, "DELAYQ_LEASE": f"{LEASE_MS}ms", "DELAYQ_TIDY_EVERY": "200ms",
        "DELAYQ_MAX_RECOVERIES": "1000", "PYTHONPATH": f"{ROOT}:{tmp_path}",
    }  # fmt: skip
    client.schedule("order.close", {"seconds": 0}, id="first")
    feed = Feed(client)
    with ExitStack() as stack:
        javascript = stack.enter_context(start())
        python = stack.enter_context(running(work, home, **environ))
        for _ in range(ROUNDS):
            feed.busy(python)
            feed.busy(javascript)
            javascript.kill()
            javascript = stack.enter_context(start())
            feed.busy(javascript)
            feed.busy(python)
            python.kill()
            python = stack.enter_context(running(work, home, **environ))
        wait_until(feed.is_done, timeout=120.0, what="nothing is left")
        assert javascript.terminate() == 0, javascript.complaints
        assert python.terminate() == 0, python.complaints
    by_node, by_python = set(javascript.ids()), set(python.ids())
    assert by_node | by_python == {"first", *feed.ids}
    assert by_node & set(feed.ids)
    assert by_python & set(feed.ids)
    [stats] = client.stats()
    assert (stats.failed, stats.completed) == (0, 0)
