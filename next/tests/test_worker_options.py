"""Options, orders and signals of a real worker, each seen from outside."""

import json
import signal
from pathlib import Path

import pytest
import redis

from delayq import DelayQ, JobRef
from tests.support.lines import complete_lines
from tests.support.waiting import wait_until
from tests.support.workers import Start, client_fixture, start_fixture

pytestmark = pytest.mark.processes

APP = """
import os
from delayq import job

@job("note", queue="q")
def note(n: int) -> None:
    with open("log", "a") as file:
        file.write(f"{n} {os.getpid()}\\n")
"""


client = client_fixture()
start = start_fixture(APP)


def send(client: DelayQ, *numbers: int, queue: str = "q") -> None:
    for n in numbers:
        client.schedule("note", {"n": n}, queue=queue)


def ran(folder: Path) -> list[int]:
    return [int(line.split()[0]) for line in complete_lines(folder / "log")]


def test_a_redis_that_evicts_is_refused_unless_that_is_allowed(
    start: Start, client: DelayQ, server: redis.Redis, tmp_path: Path
) -> None:
    send(client, 1)
    server.config_set("maxmemory-policy", "allkeys-lru")
    try:
        assert start().wait(timeout=20) == 6
        assert "Set `maxmemory-policy noeviction`, or start with --allow-eviction." in (tmp_path / "err").read_text()
        assert ran(tmp_path) == []
        assert start("--allow-eviction", "--stop-when-empty").wait(timeout=20) == 0
        assert ran(tmp_path) == [1]
    finally:
        server.config_set("maxmemory-policy", "noeviction")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--once",), [1]),
        (("--max-jobs", "2"), [1, 2]),
        (("--stop-when-empty-for", "500ms"), [1, 2, 3]),
    ],
)
def test_a_worker_ends_at_its_limit(
    start: Start, client: DelayQ, tmp_path: Path, options: tuple[str, ...], expected: list[int]
) -> None:
    send(client, 1, 2, 3)
    assert start(*options).wait(timeout=30) == 0
    assert ran(tmp_path) == expected
    assert client.stats("q")[0].ready == 3 - len(expected)


@pytest.mark.parametrize("option", ["--once", "--stop-when-empty"])
def test_a_queue_that_cannot_be_read_is_not_empty(
    start: Start, client: DelayQ, server: redis.Redis, tmp_path: Path, option: str
) -> None:
    send(client, 1, queue="good")
    send(client, 2, queue="bad")
    server.rename("delayq:{bad}:stream", "kept")
    server.set("delayq:{bad}:stream", "x")
    assert start("--queue", "bad", option).wait(timeout=20) == 1
    assert start("--queue", "bad,good", "--stop-when-empty").wait(timeout=20) == 1
    assert ran(tmp_path) == [1]
    server.rename("kept", "delayq:{bad}:stream")
    assert start("--queue", "bad", option).wait(timeout=20) == 0
    assert ran(tmp_path) == [1, 2]


def test_queues_are_served_in_their_order(start: Start, client: DelayQ, tmp_path: Path) -> None:
    send(client, 1, 2, queue="low")
    send(client, 3, 4, queue="high")
    assert start("--queue", "high,low", "--stop-when-empty").wait(timeout=20) == 0
    assert ran(tmp_path) == [3, 4, 1, 2]


def test_queues_may_be_named_one_by_one(start: Start, client: DelayQ, tmp_path: Path) -> None:
    send(client, 1, 2, queue="low")
    send(client, 3, 4, queue="high")
    assert start("--queue", "high", "--queue", "low", "--stop-when-empty").wait(timeout=20) == 0
    assert ran(tmp_path) == [3, 4, 1, 2]


def test_jobs_of_two_queues_with_the_same_entry_id_both_run(
    start: Start, client: DelayQ, server: redis.Redis, tmp_path: Path
) -> None:
    """Streams give entry ids by the millisecond. A worker of both queues took the second job for the first."""

    def have_same_entry(*pair: JobRef) -> bool:
        return len({server.hget(f"delayq:{{{ref.queue}}}:entries", ref.id) for ref in pair}) == 1

    def schedule_pair() -> tuple[JobRef, JobRef]:
        return client.schedule("note", {"n": -1}, queue="high"), client.schedule("note", {"n": -2}, queue="low")

    send(client, *range(100), queue="high")  # so quick that the worker fetches both jobs of the pair at once
    while not have_same_entry(*(pair := schedule_pair())):
        assert [ref.cancel() for ref in pair] == ["cancelled", "cancelled"]
    assert start("--queue", "high,low", "--stop-when-empty").wait(timeout=20) == 0
    assert ran(tmp_path)[-2:] == [-1, -2]


def test_two_orders_of_queues_are_refused(start: Start, tmp_path: Path) -> None:
    assert start("--queue", "high,low", "--weighted", "high:3").wait(timeout=20) == 2
    assert "--queue and --weighted are both given." in (tmp_path / "err").read_text()


def test_a_worker_goes_by_its_name(start: Start, client: DelayQ) -> None:
    start("--name", "shop-1")
    wait_until(client.workers, "the worker on the list")
    (worker,) = client.workers()
    assert (worker.name.split(":")[:2], worker.about["host"]) == (["dq", "shop-1"], "shop-1")


def test_all_weighted_queues_are_served(start: Start, client: DelayQ, tmp_path: Path) -> None:
    send(client, 1, 2, queue="low")
    send(client, 3, 4, queue="high")
    assert start("--weighted", "high:3,low:1", "--stop-when-empty").wait(timeout=20) == 0
    assert sorted(ran(tmp_path)) == [1, 2, 3, 4]


def test_usr2_pauses_a_worker_and_cont_lets_it_go_on(
    start: Start, client: DelayQ, server: redis.Redis, tmp_path: Path
) -> None:
    worker = start()
    send(client, 1)
    wait_until(lambda: ran(tmp_path) == [1])
    worker.send_signal(signal.SIGUSR2)
    wait_until(lambda: "the worker is paused by a signal" in (tmp_path / "err").read_text())
    wait_until(lambda: server.info("clients")["blocked_clients"] == 0, "the end of the read that waits for a job")
    send(client, 2)
    assert start("--once").wait(timeout=20) == 0
    assert ran(tmp_path) == [1, 2]
    worker.send_signal(signal.SIGCONT)
    send(client, 3)
    wait_until(lambda: ran(tmp_path) == [1, 2, 3])
    first, second, third = (line.split()[1] for line in (tmp_path / "log").read_text().splitlines())
    assert second != first == third
    worker.terminate()
    assert worker.wait(timeout=20) == 0


def test_maintenance_keeps_a_worker_from_jobs_and_force_does_not_heed_it(
    start: Start, client: DelayQ, tmp_path: Path
) -> None:
    client.start_maintenance()
    send(client, 1)
    assert start("--max-time", "1s").wait(timeout=20) == 0
    assert ran(tmp_path) == []
    assert start("--force", "--once").wait(timeout=20) == 0
    assert ran(tmp_path) == [1]


def test_a_paused_worker_begins_when_all_are_resumed(start: Start, client: DelayQ, tmp_path: Path) -> None:
    client.pause_all()
    send(client, 1)
    start()
    wait_until(client.workers, "the worker on the list")
    assert ran(tmp_path) == []
    client.resume_all()
    wait_until(lambda: ran(tmp_path) == [1])


def test_log_lines_are_json_when_that_is_asked_for(start: Start, tmp_path: Path) -> None:
    assert start("--json", "--max-time", "100ms").wait(timeout=20) == 0
    first, *_, last = [json.loads(line)["message"] for line in (tmp_path / "err").read_text().splitlines()]
    assert first.startswith("working on q, one job at a time; Redis at ")
    assert last.startswith("the worker is shutting down: it has run for 0.1 s")
