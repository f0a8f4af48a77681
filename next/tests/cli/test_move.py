"""The command `move`: what it makes ready, and which servers it refuses. Its long run is tested with `up`."""

import json
import logging
import subprocess
import sys

import msgspec
import pytest
import redis

from delayq import DelayQ
from delayq.core.chain import Chain, Link, encode
from delayq.core.errors import BackendUnavailable, UnsafeSetup
from delayq.redis.calls.upkeep import PAGE
from tests.cli.conftest import Run
from tests.support.queue import envelope_of


@pytest.fixture
def client(url: str) -> DelayQ:
    return DelayQ(url)


def test_once_makes_ready_what_is_due_in_all_queues(run: Run, client: DelayQ) -> None:
    for n in range(30):
        client.schedule("n", queue=f"q{n % 3}", id=f"due-{n}", delay="1h")
        client.run_now(f"due-{n}", queue=f"q{n % 3}")
    client.schedule("n", queue="q0", delay="1h")
    assert run("move", "--once").stdout == "0 jobs moved\n"
    for n in range(3):
        client.schedule("n", queue=f"q{n}", delay="1ms")
    end = run("move", "--once", "--json")
    assert (end.exit_code, json.loads(end.stdout)) == (0, {"moved": 3})
    assert [(stats.ready, stats.scheduled) for stats in client.stats()] == [(11, 1), (11, 0), (11, 0)]


def test_a_damaged_queue_keeps_no_other_from_its_jobs(
    run: Run, client: DelayQ, server: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    logging.getLogger("delayq").addHandler(caplog.handler)
    client.schedule("n", queue="a", delay="1ms")
    client.schedule("n", queue="b", delay="1ms")
    server.delete("delayq:{a}:scheduled")
    server.set("delayq:{a}:scheduled", "text")
    end = run("move", "--once")
    assert (end.exit_code, end.stdout) == (1, "1 job moved\n")
    assert "queue a failed" in caplog.text


def test_follow_up_jobs_that_cannot_be_sent_keep_no_other_from_being_sent(
    run: Run, client: DelayQ, server: redis.Redis
) -> None:
    client.schedule("n", queue="orders", delay="1h")
    server.set("delayq:{broken}:jobs", "text")

    def end_of_link(job_id: str, *, next_queue: str) -> None:
        following = envelope_of(job_id).replace(b'"orders"', f'"{next_queue}"'.encode())
        chain = encode(Chain([Link(job=msgspec.Raw(following))])).decode()
        record = envelope_of("first", extra=f',"chain":{chain}')
        server.xadd("delayq:{orders}:outbox", {"ended": "done", "job": record})

    for n in range(2 * PAGE):
        end_of_link(f"stuck-{n}", next_queue="broken")
    end_of_link("good", next_queue="mail")
    assert run("move", "--once").exit_code == 1
    assert client.get("good", queue="mail") is not None
    assert server.xlen("delayq:{orders}:outbox") == 2 * PAGE


def test_once_fails_without_the_list_of_queues(run: Run, client: DelayQ, server: redis.Redis) -> None:
    client.schedule("n", queue="a", delay="1ms")
    server.delete("delayq:queues")
    server.set("delayq:queues", "text")
    end = run("move", "--once")
    assert (end.exit_code, end.stdout) == (1, "0 jobs moved\n")


@pytest.mark.parametrize("words", [("--once",), ()])
def test_a_server_that_evicts_is_refused(run: Run, server: redis.Redis, words: tuple[str, ...]) -> None:
    server.config_set("maxmemory-policy", "allkeys-lru")
    try:
        end = run("move", *words)
        assert isinstance(end.exception, UnsafeSetup)
        assert end.exception.exit_code == 6
        assert run("move", "--once", "--allow-eviction").exit_code == 0
    finally:
        server.config_set("maxmemory-policy", "noeviction")


def test_once_does_not_wait_for_a_server(run: Run, impatient: None) -> None:
    assert isinstance(run("--url", "redis://127.0.0.1:1", "move", "--once").exception, BackendUnavailable)


def test_the_relay_finishes_its_page_before_a_signal_ends_the_mover() -> None:
    program = """
import os, signal, threading, time
from delayq.cli.commands.work import _exit_at_signals
undisturbed = threading.Lock()
_exit_at_signals(undisturbed)
with undisturbed:
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(0.2)
    print("the page is over", flush=True)
time.sleep(60)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout == "the page is over\n"
