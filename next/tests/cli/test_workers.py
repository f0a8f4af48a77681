"""Commands on all workers."""

import json
import time
from typing import Any

import pytest
import redis

from delayq import DelayQ
from delayq.redis.connection.blocking import BlockingLeaf
from delayq.redis.connection.executor import Executor
from delayq.redis.connection.url import Address
from delayq.redis.keys import Keys
from delayq.redis.worker.worker_registry import RedisWorkerRegistry
from tests.cli.conftest import Run, Tell

ABOUT = {
    "queues": ["orders", "mail"],
    "host": "shop-1",
    "pid": 42,
    "supervisor": 41,
    "started_ms": 1_795_790_900_508,
    "state": "working",
    "done": 7,
    "held": 2,
    "running": [{"id": "order-42", "queue": "orders"}],
    "runs": 1,
}


@pytest.fixture
def client(url: str) -> DelayQ:
    return DelayQ(url)


def answer(run: Run, *words: str) -> Any:
    end = run(*words, "--json")
    assert end.exit_code == 0, end.output
    return json.loads(end.stdout)


def test_workers_are_listed(run: Run, url: str, server: redis.Redis) -> None:
    assert run("workers").stdout.split() == ["HOST", "PID", "STATE", "RUNS", "DONE", "SINCE", "QUEUES"]
    assert run("workers").stderr == "delayq: No worker is running; `delayq work --app shop.jobs` starts one.\n"
    assert run("workers", "--json").stdout == ""
    registry = RedisWorkerRegistry(Executor(BlockingLeaf(Address(url))), Keys())
    registry.announce({"dq:shop-1:42:x": ABOUT}, time.time_ns() // 1_000_000)
    assert answer(run, "workers") == {"name": "dq:shop-1:42:x", **ABOUT}
    (_, row) = run("workers").stdout.splitlines()
    assert row.split() == ["shop-1", "42", "working", "1", "7", "2026-11-27T14:48:20.508Z", "orders,mail"]


def test_restart_asks_all_workers(run: Run, client: DelayQ) -> None:
    asked = answer(run, "restart")
    assert asked["restart_ms"] == client.control().restart_ms
    assert run("restart").stdout == "all workers  asked to restart\n"


def test_maintenance_begins_and_ends(run: Run, client: DelayQ) -> None:
    begun = answer(run, "maintenance", "on", "--for", "30m", "--reason", "new disks")
    assert (begun["maintenance"], begun["reason"]) == (True, "new disks")
    assert client.control().maintenance_until_ms == begun["maintenance_until_ms"]
    assert run("maintenance", "on").stdout == "maintenance  on\n"
    client.pause_all(reason="broken mail")
    assert run("-q", "workers").stderr == (
        "delayq: Maintenance is on; `delayq maintenance off` ends the maintenance.\n"
        "delayq: All workers are paused (broken mail); `delayq resume --all` ends the pause.\n"
    )
    assert answer(run, "maintenance", "off")["maintenance"] is False
    assert run("maintenance", "off").stdout == "maintenance  off\n"


def test_a_refusal_is_one_sentence_and_its_exit_code(tell: Tell, impatient: None) -> None:
    assert tell("maintenance", "on", "--for", "x") == (
        2,
        "delayq: --for 'x' is not a duration. Write 500ms, 90s, 15m, 1h30m, 2d or PT15M.\n",
    )
    assert tell("maintenance", "of")[0] == 2
    assert tell("--url", "redis://127.0.0.1:1", "restart")[0] == 5
