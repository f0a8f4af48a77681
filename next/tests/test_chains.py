"""Chains and batches in a real worker."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from pydantic import SecretStr

from delayq import DelayQ, JobRef, Manager, Settings, batch, chain, find_batch, set_manager
from delayq.jobs.dispatch import Sendable, _by_name
from tests.support.topologies import lines
from tests.support.waiting import wait_until
from tests.support.workers import Start, workers_of

pytestmark = pytest.mark.processes

APP = """
import asyncio, os, time
from delayq import Fail, Job, JobContext, Retry, batch, chain, job

log = os.open("log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

def note(text: str) -> None:
    os.write(log, f"{text}\\n".encode())

@job("step", queue="q")
def step(text: str, seconds: float = 0.0) -> None:
    note(text)
    time.sleep(seconds)

@job("other", queue="r")
def other(text: str, seconds: float = 0.0) -> None:
    note(text)
    time.sleep(seconds)

@job("async", queue="q")
async def asynchronous(text: str, seconds: float = 0.0) -> None:
    note(text)
    await asyncio.sleep(seconds)

@job("deaf", queue="q")
def deaf(text: str, seconds: float = 0.0) -> None:
    note(text)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            time.sleep(0.05)
        except BaseException:
            pass

@job("polite", queue="q")
def polite(context: JobContext, text: str, seconds: float = 0.0) -> None:
    note(text)
    while not context.stopping:
        time.sleep(0.05)

@job("fails", queue="q", tries=1)
def fails(text: str, until: str = "") -> None:
    note(text)
    if not os.path.exists(until):
        raise ValueError("sold out")

@job("again", queue="q", tries=5, backoff="1ms")
def again(text: str, until: str) -> None:
    note(text)
    while not os.path.exists(until):
        time.sleep(0.02)
    raise ValueError("again")

@job("caught", queue="q")
def caught(context: JobContext) -> None:
    note(" ".join(context.headers[f"delayq-failed-{word}"] for word in ("queue", "error", "message")))

@job("grows", queue="q", tries=3, backoff="100ms")
def grows(context: JobContext) -> None:
    note("grows " + ",".join(context.chain.remaining))
    context.chain.prepend(step.job(text="first"), step.job(text="second"))
    context.chain.append(step.job(text="last"))
    if context.attempt < 3:
        raise ValueError("again")

@job("loads", queue="q", tries=2, backoff="100ms")
def loads(context: JobContext) -> None:
    context.batch.add([step.job(text=f"added {n}") for n in range(3)])
    note(f"loads {context.batch.info().total}")
    if context.attempt == 1:
        raise ValueError("again")
"""


@pytest.fixture
def client(url: str, server: redis.Redis) -> Iterator[DelayQ]:
    manager = Manager(Settings(url=SecretStr(url), queue="q"))
    set_manager(manager)
    yield manager.connection().client
    set_manager(None)
    manager.close()


@pytest.fixture
def start(url: str, client: DelayQ, tmp_path: Path) -> Iterator[Start]:
    with workers_of(APP, tmp_path, url, DELAYQ_LEASE="2s", DELAYQ_QUEUE="q") as start:
        yield start


def job(name: str, **data: Any) -> Sendable:
    return _by_name(name, data).on_queue("r" if name == "other" else "q")


def test_links_run_in_order_in_their_queues(client: DelayQ, start: Start, tmp_path: Path) -> None:
    start("--queue", "q,r")
    ref = chain(job("step", text="1"), job("other", text="2"), job("async", text="3")).dispatch()
    assert isinstance(ref, JobRef)
    wait_until(lambda: lines(tmp_path / "log") == ["1", "2", "3"])
    wait_until(lambda: [stats.ready + stats.reserved for stats in client.stats()] == [0, 0])


def test_a_failed_link_sends_catch_and_a_retry_goes_on(client: DelayQ, start: Start, tmp_path: Path) -> None:
    start("--queue", "q,r")
    ref = (
        chain(job("fails", text="1", until=str(tmp_path / "stock")), job("step", text="2"))
        .catch(job("caught"))
        .dispatch()
    )
    wait_until(lambda: lines(tmp_path / "log") == ["1", "q ValueError sold out"])
    (tmp_path / "stock").touch()
    client.retry(ref.id)
    wait_until(lambda: lines(tmp_path / "log")[2:] == ["1", "2"])


@pytest.mark.parametrize(
    ("name", "options"),
    [("step", []), ("step", ["--threads", "3"]), ("polite", ["--threads", "3"]), ("async", []), ("deaf", [])],
    ids=["inline", "threads", "returns", "loop", "killed"],
)
def test_a_link_that_is_cancelled_while_it_runs_ends_the_chain(
    client: DelayQ, start: Start, tmp_path: Path, name: str, options: list[str]
) -> None:
    start("--queue", "q", *options)
    links = chain(job(name, text="1", seconds=30.0), job("step", text="2")).catch(job("caught"))
    info = batch([links], then=job("step", text="then"), finally_=job("step", text="finally")).dispatch()
    wait_until(lambda: lines(tmp_path / "log") == ["1"])
    assert client.cancel(f"{info.id}.0", running=True) == "running"
    wait_until(lambda: lines(tmp_path / "log")[1:] == ["finally"])
    info = client.batches.require(info.id)
    assert (info.state, info.skipped, info.pending) == ("incomplete", 1, 0)


def test_a_link_changes_its_chain_when_it_succeeds(client: DelayQ, start: Start, tmp_path: Path) -> None:
    start("--queue", "q")
    chain(job("grows"), job("step", text="old")).dispatch()
    wait_until(lambda: lines(tmp_path / "log") == ["grows step"] * 3 + ["first", "second", "old", "last"])


def test_a_link_waits_for_its_unique_key(client: DelayQ, start: Start, tmp_path: Path) -> None:
    start("--queue", "q")
    owner = client.schedule("step", {"text": "owner"}, delay="1h", unique="key")
    chain(job("step", text="1"), job("step", text="2")._with(unique="key"), job("step", text="3")).dispatch()
    chain(job("step", text="a"), job("step", text="b")).dispatch()
    wait_until(lambda: sorted(lines(tmp_path / "log")) == ["1", "a", "b"])
    client.cancel(owner.id)
    wait_until(lambda: lines(tmp_path / "log")[3:] == ["2", "3"])


def test_a_batch_sends_each_callback_once(client: DelayQ, start: Start, tmp_path: Path) -> None:
    start("--queue", "q")
    info = batch(
        [job("step", text=f"m{n}") for n in range(20)] + [chain(job("step", text="c1"), job("step", text="c2"))],
        name="all",
        before=job("step", text="before"),
        then=job("step", text="then"),
        catch=job("step", text="catch"),
        finally_=job("step", text="finally"),
    ).dispatch()
    assert (info.name, info.total, info.state) == ("all", 21, "running")
    wait_until(lambda: len(lines(tmp_path / "log")) == 25)
    found = lines(tmp_path / "log")
    assert sorted(found) == sorted([f"m{n}" for n in range(20)] + ["c1", "c2", "before", "then", "finally"])
    done = find_batch(info.id)
    assert done is not None
    assert (done.state, done.succeeded, done.per_cent) == ("finished", 21, 100)


def test_the_first_failure_cancels_the_waiting_members(client: DelayQ, start: Start, tmp_path: Path) -> None:
    start("--queue", "q")
    stock = str(tmp_path / "stock")
    info = batch(
        [job("fails", text="bad", until=stock), *[job("step", text=f"m{n}")._with(delay="1h") for n in range(500)]],
        catch=job("caught"),
        then=job("step", text="then"),
        finally_=job("step", text="finally"),
    ).dispatch()
    wait_until(lambda: (found := find_batch(info.id)) is not None and found.state == "failed")
    wait_until(lambda: lines(tmp_path / "log") == ["bad", "q ValueError sold out", "finally"])
    found = find_batch(info.id)
    assert found is not None
    assert (found.failed, found.skipped, found.pending) == (1, 500, 0)
    assert client.stats()[0].scheduled == 0


def test_then_is_sent_after_a_retry_of_all_failed_members(client: DelayQ, start: Start, tmp_path: Path) -> None:
    start("--queue", "q")
    stock = tmp_path / "stock"
    info = batch(
        [job("fails", text=f"{n}", until=str(stock)) for n in range(5)],
        allow_failures=True,
        then=job("step", text="then"),
        finally_=job("step", text="finally"),
    ).dispatch()
    wait_until(lambda: lines(tmp_path / "log")[5:] == ["finally"])
    stock.touch()
    assert client.batches.retry(info.id) == 5
    wait_until(lambda: lines(tmp_path / "log")[11:] == ["then"])


def test_a_running_member_that_fails_after_the_cancel_is_not_retried(
    client: DelayQ, start: Start, tmp_path: Path
) -> None:
    start("--queue", "q")
    until = tmp_path / "until"
    member = chain(job("again", text="1", until=str(until)), job("step", text="2"))
    info = batch([member], catch=job("caught"), finally_=job("step", text="finally")).dispatch()
    wait_until(lambda: lines(tmp_path / "log") == ["1"])
    client.batches.cancel(info.id)
    until.touch()
    wait_until(lambda: lines(tmp_path / "log") == ["1", "finally"])
    info = client.batches.require(info.id)
    assert (info.state, info.skipped) == ("cancelled", 1)


def test_a_batch_as_a_link(client: DelayQ, start: Start, tmp_path: Path, server: redis.Redis) -> None:
    start("--queue", "q")
    chain(job("step", text="1"), batch([job("step", text=f"m{n}") for n in range(3)]), job("step", text="2")).dispatch()
    wait_until(lambda: lines(tmp_path / "log")[-1:] == ["2"])
    assert sorted(lines(tmp_path / "log")[1:4]) == ["m0", "m1", "m2"]
    assert server.zcard("delayq:batches") == 1


def test_a_member_adds_members_once(client: DelayQ, start: Start, tmp_path: Path) -> None:
    start("--queue", "q")
    info = batch([job("loads")], then=job("step", text="then")).dispatch()
    wait_until(lambda: lines(tmp_path / "log")[-1:] == ["then"])
    assert sorted(lines(tmp_path / "log")) == sorted(["loads 4", "loads 4", "added 0", "added 1", "added 2", "then"])
    found = find_batch(info.id)
    assert found is not None
    assert (found.total, found.succeeded) == (4, 4)


def test_a_worker_waits_for_the_relay_before_it_stops(
    client: DelayQ, start: Start, tmp_path: Path, server: redis.Redis
) -> None:
    members = [chain(job("step", text=f"a{n}"), job("step", text=f"b{n}")) for n in range(5)]
    chain(job("step", text="1", seconds=0.5), batch(members), job("step", text="2")).dispatch()
    worker = start("--queue", "q", "--stop-when-empty")
    wait_until(lambda: lines(tmp_path / "log") == ["1"])
    until = int(server.time()[0]) * 1000 + 2_000
    server.hset("delayq:{q}:meta", mapping={"relay": "other", "relay_until": until})  # as after the death of a relay
    assert worker.wait(30) == 0
    assert len(lines(tmp_path / "log")) == 12
    assert lines(tmp_path / "log")[-1] == "2"


def test_an_old_record_does_not_keep_a_worker_from_its_end(
    client: DelayQ, start: Start, tmp_path: Path, server: redis.Redis
) -> None:
    server.xadd("delayq:{q}:outbox", {"ended": "done", "job": "{}"}, id=f"{(int(server.time()[0]) - 20) * 1000}-0")
    client.schedule("step", {"text": "1"})
    assert start("--queue", "q", "--stop-when-empty", "--no-mover").wait(10) == 0
    assert (lines(tmp_path / "log"), server.xlen("delayq:{q}:outbox")) == (["1"], 1)


SLOW_RELAY = (
    APP
    + """
from pathlib import Path
from delayq.redis.worker.queue_keeper import RedisQueueKeeper

follow_up = RedisQueueKeeper.follow_up

def slow(self, queue):
    Path("begun").touch()
    time.sleep(0.5)
    answer = follow_up(self, queue)
    Path("ended").touch()
    return answer

RedisQueueKeeper.follow_up = slow
"""
)


def test_the_relay_finishes_its_page_before_the_worker_ends(client: DelayQ, url: str, tmp_path: Path) -> None:
    """Otherwise the outbox would stay reserved, and the next worker would wait for two seconds."""
    with workers_of(SLOW_RELAY, tmp_path, url, DELAYQ_QUEUE="q") as start:
        worker = start("--queue", "q")
        chain(job("step", text="1"), job("step", text="2")).dispatch()
        wait_until((tmp_path / "begun").exists)
        worker.terminate()
        assert worker.wait(timeout=60) == 0
        assert (tmp_path / "ended").exists()
