"""Commands on all workers."""

import json
import re
import time
from typing import Any

import pytest
import redis

from delayq import DelayQ
from delayq.core.views import WorkerInfo
from delayq.redis.connection.blocking import BlockingLeaf
from delayq.redis.connection.server import ServerExecutor
from delayq.redis.connection.url import Address
from delayq.redis.keys import Keys
from delayq.redis.worker.worker_registry import RedisWorkerRegistry
from tests.cli.conftest import Run, Tell

ABOUT: dict[str, Any] = {
    "queues": ["orders", "mail"],
    "host": "shop-1",
    "pid": 42,
    "supervisor": 41,
    "started_ms": 1_795_790_900_508,
    "state": "working",
    "done": 7,
    "held": 2,
    "running": [{"id": "order-42", "name": "order.close", "queue": "orders", "started_ms": 1_795_790_901_508}],
    "runs": 1,
}


@pytest.fixture
def client(url: str) -> DelayQ:
    return DelayQ(url)


def answer(run: Run, *words: str) -> Any:
    end = run(*words, "--json")
    assert end.exit_code == 0, end.output
    return json.loads(end.stdout)


def announce(url: str, **documents: dict[str, Any]) -> None:
    registry = RedisWorkerRegistry(ServerExecutor(BlockingLeaf(Address(url))), Keys())
    registry.announce(documents, time.time_ns() // 1_000_000)


def test_only_processes_that_cannot_be_shown(run: Run, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a cluster, their node may not answer."""
    names = ["dq:vm:18280:a131c448", "dq:vm:18280:b131c448", "plain"]
    found = [WorkerInfo(name, [], {"error": "Redis at node-2 does not answer."}) for name in names]
    monkeypatch.setattr(DelayQ, "workers", lambda client: found)
    shown = run("workers")
    assert (shown.exit_code, shown.stdout) == (1, "")
    assert shown.stderr.splitlines() == [
        "delayq: 2 processes of the worker on vm (pid 18280) cannot be shown. Redis at node-2 does not answer.",
        "delayq: The process plain cannot be shown. Redis at node-2 does not answer.",
    ]


def test_workers_are_listed(run: Run, url: str, server: redis.Redis) -> None:
    assert run("workers").stdout.split() == ["HOST", "PID", "STATE", "RUNS", "DONE", "SINCE", "QUEUES"]
    assert run("workers").stderr == "delayq: No worker is running; `delayq work --app shop.jobs` starts one.\n"
    assert run("workers", "--json").stdout == ""
    announce(url, w=ABOUT)
    found = answer(run, "workers")
    runtime_ms = found["running"][0].pop("runtime_ms")
    assert abs(time.time() * 1000 - 1_795_790_901_508 - runtime_ms) < 60_000
    running = {**ABOUT["running"][0], "started": "2026-11-27T14:48:21.508Z"}
    assert found == {"name": "w", **ABOUT, "started": "2026-11-27T14:48:20.508Z", "running": [running]}
    (_, row, job) = run("workers").stdout.splitlines()
    assert row.split() == ["shop-1", "42", "working", "1", "7", "2026-11-27T14:48:20.508Z", "orders,mail"]
    assert re.fullmatch(r"  running for [0-9dhms]+  order\.close  order-42", job)


def test_a_crashed_child_is_listed_without_a_process_id(run: Run, url: str, server: redis.Redis) -> None:
    announce(url, w={**ABOUT, "pid": None, "state": "crashed", "held": 0, "running": [], "runs": 0})
    assert run("workers").stdout.splitlines()[1].split()[:3] == ["shop-1", "crashed", "0"]
    assert (answer(run, "workers")["pid"], answer(run, "workers")["state"]) == (None, "crashed")


def test_running_jobs_stand_below_their_child(run: Run, url: str, server: redis.Redis) -> None:
    now_ms = time.time_ns() // 1_000_000
    long, short = (
        {"id": id, "name": name, "queue": "orders", "started_ms": now_ms - ago_ms}
        for id, name, ago_ms in (("9" * 250, "order.close", 3 * 3_600_000 + 600_500), ("7", "mail\x1b", 90_500))
    )
    idle = {**ABOUT, "pid": 43, "state": "idle", "running": [], "runs": 0}
    announce(url, a={**ABOUT, "running": [long, short], "runs": 14}, b=idle)
    assert run("workers").stdout == (
        "HOST    PID  STATE    RUNS  DONE  SINCE                     QUEUES\n"
        "shop-1   42  working    14     7  2026-11-27T14:48:20.508Z  orders,mail\n"
        f"  running for 3h10m  order.close  {'9' * 250}\n"
        "  running for 1m30s  mail\\x1b     7\n"
        "  … and 12 more\n"
        "shop-1   43  idle        0     7  2026-11-27T14:48:20.508Z  orders,mail\n"
    )


@pytest.mark.parametrize(
    ("running", "below"),
    [
        ([{"id": "order-42", "queue": "orders"}], ["  order-42"]),
        ([{"id": 7, "name": None, "started_ms": "soon"}, "?", None], ["  7"]),
        ("?", []),
        ([], []),
    ],
)
def test_entries_of_other_programs_are_listed_too(
    run: Run, url: str, server: redis.Redis, running: Any, below: list[str]
) -> None:
    announce(url, w={**ABOUT, "running": running, "runs": "?"})
    assert run("workers").stdout.splitlines()[2:] == below
    assert answer(run, "workers") == {"name": "w", **ABOUT, "running": running, "runs": "?"}


def test_a_clock_that_is_behind_shows_no_negative_runtime(run: Run, url: str, server: redis.Redis) -> None:
    ahead = {**ABOUT["running"][0], "started_ms": time.time_ns() // 1_000_000 + 60_000}
    announce(url, w={**ABOUT, "running": [ahead]})
    assert answer(run, "workers")["running"][0]["runtime_ms"] == 0
    assert run("workers").stdout.splitlines()[2] == "  running for 0s  order.close  order-42"


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


def test_a_full_server_keeps_the_workers_that_it_has(
    run: Run, url: str, server: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    registry = RedisWorkerRegistry(ServerExecutor(BlockingLeaf(Address(url))), Keys())
    about = {"queues": ["orders"], "state": "idle"}
    registry.announce({"dq:a:1:x": about}, 1)
    server.pexpire("delayq:worker:dq:a:1:x", 5_000)
    server.config_set("maxmemory", 1)
    try:
        registry.announce({"dq:a:1:x": about}, 1)
    finally:
        server.config_set("maxmemory", 0)
    left: Any = server.pttl("delayq:worker:dq:a:1:x")
    assert left > 20_000
    assert "the list of workers cannot be updated: " in caplog.text
