"""Commands on queues: each on a real server, with its refusals and exit codes."""

import json
import threading
from typing import Any

import pytest
import redis

from delayq import DelayQ, DelayqError
from delayq.cli import progress
from delayq.core.errors import QueueInUse, QueueNotFound
from delayq.core.options import DEFAULTS
from delayq.redis.connection.blocking import BlockingLeaf
from delayq.redis.connection.server import ServerExecutor
from delayq.redis.connection.url import Address
from delayq.redis.keys import Keys
from delayq.redis.worker.queue_keeper import RedisQueueKeeper
from tests.cli.conftest import Run, Tell
from tests.support.queue import QueueOnServer
from tests.support.waiting import wait_until


@pytest.fixture
def client(url: str) -> DelayQ:
    return DelayQ(url)


@pytest.fixture
def orders(url: str, server: redis.Redis) -> QueueOnServer:
    """The queue orders, as a worker sees it."""
    return QueueOnServer(url, server, Keys("delayq"))


def list_orders(orders: QueueOnServer) -> None:
    orders.server.sadd("delayq:queues", "orders")


def answer(run: Run, *words: str) -> Any:
    end = run(*words, "--json")
    assert end.exit_code == 0, end.output
    return json.loads(end.stdout)


def test_a_queue_that_is_too_busy_is_exit_code_1(run: Run, orders: QueueOnServer) -> None:
    list_orders(orders)
    for n in range(3):
        orders.schedule(f"job-{n}", now="")
    assert run("stats", "--busy-above", "3").exit_code == 0
    busy = run("stats", "--busy-above", "2")
    assert (busy.exit_code, busy.stderr) == (1, "delayq: More than 2 jobs are ready in: orders.\n")
    assert busy.stdout.splitlines()[1].split()[:3] == ["orders", "0", "3"]


def test_the_history_is_shown_by_days(run: Run, client: DelayQ, url: str) -> None:
    keeper = RedisQueueKeeper(ServerExecutor(BlockingLeaf(Address(url))), Keys(), DEFAULTS, name="dq:a:1:x")
    for n in range(3):
        client.schedule("order.close", id=f"job-{n}", queue="orders", delay="1h")
    client.cancel("job-0", queue="orders")
    keeper.repair("orders")
    assert answer(run, "stats", "--queue", "orders")["queues"][0].keys().isdisjoint({"days"})
    (queue,) = answer(run, "stats", "--days", "7")["queues"]
    (today,) = queue["days"]
    assert (today["scheduled"], today["cancelled"]) == (3, 1)
    assert client.history("orders", days=1)[0].day == today["day"]
    assert [line.split() for line in run("stats", "--days", "7").stdout.splitlines()[-2:]] == [
        ["QUEUE", "DAY", *[name.upper() for name in today if name != "day"]],
        ["orders", *map(str, today.values())],
    ]


def test_a_queue_is_paused_and_resumed(run: Run, client: DelayQ) -> None:
    run("schedule", "n", "--queue", "orders", "--in", "1h")
    assert answer(run, "pause", "orders") == {
        "queue": "orders",
        "paused": True,
        "paused_until_ms": 0,
        "paused_until": None,
    }
    assert client.stats("orders")[0].paused
    assert run("pause", "orders", "--for", "1h").stdout.startswith("orders  paused until 2")
    assert answer(run, "resume", "orders")["paused"] is False
    assert not client.stats("orders")[0].paused
    assert run("resume", "orders").stdout == "orders  resumed\n"


def test_a_queue_is_paused_before_its_first_job(run: Run, client: DelayQ) -> None:
    client.schedule("order.close", queue="orders")
    paused = run("pause", "ordres")
    assert (paused.exit_code, paused.stdout) == (0, "ordres  paused\n")
    assert paused.stderr == (
        "delayq: The queue ordres is new. Its jobs wait until `delayq resume ordres`. Did you mean orders?\n"
    )
    assert run("pause", "ordres").stderr == run("-q", "pause", "later").stderr == ""
    assert [(one.queue, one.paused) for one in client.stats()] == [("later", True), ("orders", False), ("ordres", True)]
    client.schedule("order.close", queue="ordres")
    assert (client.stats("ordres")[0].scheduled, client.stats("ordres")[0].ready) == (1, 0)
    run("resume", "ordres")
    assert "Did you mean" not in run("pause", "quite-different").stderr
    assert run("pause", "short", "--for", "1h").stderr.startswith(
        "delayq: The queue short is new. Its jobs wait until the pause ends."
    )


def test_all_workers_are_paused_and_resumed(run: Run, client: DelayQ) -> None:
    paused = answer(run, "pause", "--all", "--for", "1h", "--reason", "broken mail")
    assert (paused["paused"], paused["paused_reason"], paused["maintenance"]) == (True, "broken mail", False)
    assert client.control().paused_until_ms == paused["paused_until_ms"]
    assert answer(run, "resume", "--all")["paused"] is False


def test_a_pause_tells_what_still_runs_after_its_wait(run: Run, orders: QueueOnServer) -> None:
    list_orders(orders)
    held = orders.reserve("order-42")
    waited = run("pause", "orders", "--wait", "0s", "--json")
    assert waited.exit_code == 1
    assert json.loads(waited.stdout)["running"] == [{"id": "order-42", "queue": "orders"}]
    assert waited.stderr == (
        "delayq: After 0s, workers still have jobs of this queue. The pause stays in force; "
        "`delayq resume orders` ends the pause.\n"
    )
    assert "`delayq resume --all` ends the pause." in run("pause", "--all", "--wait", "0s").stderr
    run("resume", "--all")
    text = run("pause", "orders", "--wait", "100ms")
    assert (text.exit_code, text.stdout) == (1, "orders  paused\norder-42  runs in queue orders\n")
    orders.ack(held[0])
    assert answer(run, "pause", "orders", "--wait", "1m")["running"] == []


def test_a_pause_waits_until_nothing_runs(run: Run, orders: QueueOnServer, client: DelayQ) -> None:
    list_orders(orders)
    (held,) = orders.reserve("order-42")

    def settle() -> None:
        wait_until(lambda: client.control().paused_until_ms is not None)
        orders.ack(held)

    settling = threading.Thread(target=settle)
    settling.start()
    waited = run("pause", "--all", "--wait", "1m")
    settling.join()
    assert (waited.exit_code, waited.stdout) == (0, "all workers  paused\n")


def test_a_queue_that_cannot_be_read_has_no_numbers(run: Run, orders: QueueOnServer) -> None:
    list_orders(orders)
    orders.server.set("delayq:{orders}:scheduled", "no sorted set")
    row = run("stats").stdout.splitlines()[1]
    assert row.split()[:7] == ["orders", "-", "-", "-", "-", "-", "Redis"]


def test_a_queue_that_cannot_be_read_does_not_count_as_idle_or_as_running(run: Run, orders: QueueOnServer) -> None:
    list_orders(orders)
    orders.server.set("delayq:{orders}:scheduled", "no sorted set")
    waited = run("pause", "--all", "--wait", "100ms")
    assert isinstance(waited.exception, DelayqError)
    assert str(waited.exception).startswith("The pause is in force, but the queue 'orders' cannot be read. Redis at")
    resumed = run("resume", "--all")
    assert resumed.exit_code == 0
    assert "These queues cannot be read, and may be paused by name: orders." in resumed.stderr


def test_clear_drops_what_waits(run: Run, client: DelayQ, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PROGRESS_EVERY", 0.0)
    for n in range(600):
        client.schedule("n", id=f"job-{n}", queue="orders", delay="1h")
    cleared = run("clear", "--queue", "orders", "--yes", "--json")
    assert json.loads(cleared.stdout) == {"queue": "orders", "deleted": 600}
    assert cleared.stderr == "delayq: 500 deleted …\ndelayq: 600 deleted …\n"
    assert run("clear", "--queue", "orders", "--yes").stdout == "orders  0 jobs deleted\n"


def test_a_queue_is_set_shown_and_removed(run: Run) -> None:
    run("schedule", "n", "--id", "order-42", "--queue", "orders", "--in", "1h")
    view = answer(run, "queue", "set", "orders", "--lease", "2m")
    assert (view["lease_ms"], view["holds"]["scheduled"]) == (120_000, 1)
    assert answer(run, "queue", "show", "orders") == view
    assert run("queue", "show", "orders").stdout == "orders  lease 2m\n  1 scheduled\n"
    run("pause", "orders")
    assert run("queue", "show", "orders").stdout.startswith("orders  lease 2m, paused\n")
    run("cancel", "order-42", "--queue", "orders")
    assert run("queue", "remove", "orders").stdout == "orders  removed\n"
    assert answer(run, "stats") == {"queues": []}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("queue", "show", "nope"), {"queue": "nope", "state": "unknown"}),
        (("queue", "remove", "nope"), {"queue": "nope", "outcome": "unknown"}),
        (("resume", "nope"), {"queue": "nope", "outcome": "unknown"}),
        (("clear", "--queue", "nope", "--yes"), {"queue": "nope", "outcome": "unknown"}),
        (("queue", "remove", "orders"), {"queue": "orders", "outcome": "refused"}),
        (("queue", "set", "orders", "--shards", "4"), {"queue": "orders", "outcome": "refused"}),
    ],
)
def test_a_refusal_is_told_as_json(run: Run, words: tuple[str, ...], told: dict[str, str]) -> None:
    run("schedule", "n", "--queue", "orders", "--in", "1h")
    end = run(*words, "--json")
    assert json.loads(end.stdout) == told
    assert isinstance(end.exception, QueueInUse if "refused" in told.values() else QueueNotFound)


def test_the_number_of_shards_changes_while_the_queue_is_empty(run: Run) -> None:
    view = answer(run, "queue", "set", "orders", "--shards", "8")
    assert view["shards"] == 8
    assert run("queue", "show", "orders").stdout == "orders  lease 30s, 8 shards\n"
    run("schedule", "n", "--in", "1h", "--id", "order-1", "--queue", "orders")
    assert answer(run, "show", "order-1", "--queue", "orders")["shard"] == 7


def test_what_a_queue_holds_is_told_in_words(run: Run, orders: QueueOnServer) -> None:
    list_orders(orders)
    orders.reserve("order-42")
    assert run("queue", "show", "orders").stdout.splitlines()[1:] == ["  1 ready or reserved"]


def test_counts_tell_what_keeps_all_workers_from_starting_jobs(run: Run, client: DelayQ) -> None:
    client.schedule("n", delay="1h")
    assert run("stats").stderr == ""
    client.pause_all(reason="broken mail")
    assert (
        run("stats").stderr == "delayq: All workers are paused (broken mail); `delayq resume --all` ends the pause.\n"
    )


def test_counts_of_no_queue_tell_the_next_step(run: Run) -> None:
    assert run("stats").stderr == "delayq: No queue is known yet; the first `delayq schedule` creates one.\n"


def test_queues_that_stay_paused_are_told(run: Run, client: DelayQ) -> None:
    client.schedule("n", queue="orders", delay="1h")
    client.pause("orders")
    assert run("resume", "--all").stderr == "delayq: These queues were paused by name and stay paused: orders.\n"
    client.resume("orders")
    assert run("resume", "--all").stderr == ""


def test_y_is_short_for_yes(run: Run, client: DelayQ) -> None:
    client.schedule("n", queue="orders", delay="1h")
    assert run("clear", "--queue", "orders", "-y").stdout == "orders  1 job deleted\n"


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("pause", "orders", "--all"), 2, "The queue 'orders' and --all are both given. Leave out one of them."),
        (("pause", "orders", "--for", "x"), 2, "--for 'x' is not a duration."),
        (("pause", "orders", "--wait", "x"), 2, "--wait 'x' is not a duration."),
        (("resume", "ordres"), 3, "No queue 'ordres' is known."),
        (("resume", "orders", "--all"), 2, "are both given."),
        (("clear", "--queue", "ordres", "--yes"), 3, "No queue 'ordres' is known."),
        (
            ("clear", "--queue", "orders"),
            2,
            "Delete 1 scheduled or ready job of the queue orders? "
            "Nothing was done: confirmation needs a terminal. Add --yes.",
        ),
        (("queue", "set", "orders", "--lease", "1ms"), 2, "--lease 1ms is too short."),
        (("queue", "set", "orders", "--shards", "4"), 4, "The queue 'orders' is not empty: 1 scheduled."),
        (("queue", "set", "orders", "--shards", "0"), 2, "--shards is 0. Use a whole number from 1 to 64."),
        (("queue", "set", "orders", "--shards", "65"), 2, "--shards is 65. Use a whole number from 1 to 64."),
        (("queue", "set", "orders"), 2, "--lease and --shards are both missing. Give at least one of them."),
        (("queue", "show", "ordres"), 3, "No queue 'ordres' is known."),
        (("queue", "remove", "ordres"), 3, "No queue 'ordres' is known."),
        (("queue", "remove", "orders"), 4, "The queue 'orders' is not empty: 1 scheduled."),
        (("stats", "--queue", "ordres", "--days", "7"), 3, "No queue 'ordres' is known."),
    ],
)
def test_a_refusal_is_one_sentence_and_its_exit_code(tell: Tell, words: list[str], code: int, told: str) -> None:
    tell("schedule", "n", "--queue", "orders", "--in", "1h")
    ended, message = tell(*words)
    assert (ended, message.count("\n"), told in message) == (code, 1, True), message


@pytest.mark.parametrize("words", [["clear", "--yes", "--queue", ""], ["pause", ""], ["resume", ""]], ids=" ".join)
def test_an_empty_queue_is_no_default_queue(run: Run, client: DelayQ, words: list[str]) -> None:
    """It is most often a variable of a shell that is not set."""
    client.schedule("n", delay="1h")
    error = run(*words).exception
    assert isinstance(error, DelayqError)
    assert (error.exit_code in (2, 3), client.stats("default")[0].scheduled) == (True, 1)
