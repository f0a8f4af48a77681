"""Commands on failed jobs: each on a real server, with its refusals and exit codes."""

import json
import os
import pty
import subprocess
import sys
import time
from typing import Any

import pytest
import redis

from delayq import DelayQ
from delayq.cli import progress
from delayq.core.errors import DelayqError, InvalidInput
from tests.cli.conftest import Run, Tell


@pytest.fixture
def client(url: str) -> DelayQ:
    return DelayQ(url)


@pytest.fixture
def failures(client: DelayQ, server: redis.Redis) -> DelayQ:
    """Five failed jobs in two queues; none of them in the default one."""
    for id, name, queue, reason in (
        ("close-1", "order.close", "orders", "no order 1"),
        ("close-2", "order.close", "orders", "no order 2"),
        ("pay-1", "order.pay", "orders", "the bank is closed"),
        ("mail-1", "mail", "mail", "no address"),
        ("close-3", "order.close", "mail", "no order 3"),
    ):
        tags = ["web"] if queue == "mail" else None
        client.schedule(name, id=id, queue=queue, delay="1h", tags=tags)
        client.archive(id, queue=queue, reason=reason)
        time.sleep(0.002)  # those that fail in one millisecond are listed by id
    return client


def lines(run: Run, *words: str) -> list[Any]:
    end = run("failed", *words, "--json")
    assert end.exit_code == 0, end.output
    return [json.loads(line) for line in end.stdout.splitlines()]


def ids(run: Run, *words: str) -> list[str]:
    return [job["id"] for job in lines(run, *words)]


def failed_by_queue(client: DelayQ) -> dict[str, int]:
    return {stats.queue: stats.failed for stats in client.stats()}


def test_list_shows_all_queues_with_their_errors(run: Run, failures: DelayQ) -> None:
    assert ids(run, "list") == ["close-3", "mail-1", "pay-1", "close-2", "close-1"]
    assert ids(run, "list", "--queue", "orders") == ["pay-1", "close-2", "close-1"]
    assert ids(run, "list", "--queue", "orders,mail", "--name", "order.p*") == ["pay-1"]
    assert ids(run, "list", "--since", "1h") == ids(run, "list")
    assert ids(run, "list", "--until", "1h") == []
    assert lines(run, "list", "--name", "mail")[0]["error"]["message"] == "no address"
    table = run("failed", "list", "--limit", "1")
    assert table.stdout.splitlines()[1].split()[:3] == ["close-3", "order.close", "mail"]
    assert table.stdout.splitlines()[1].endswith("Archived: no order 3")
    assert table.stderr == "delayq: The list has only 1 job, but more match. Use a higher --limit.\n"


def test_a_tag_selects_jobs_in_each_command(run: Run, failures: DelayQ) -> None:
    assert ids(run, "list", "--tag", "web") == ["close-3", "mail-1"]
    assert ids(run, "list", "--tag", "web", "--name", "mail") == ["mail-1"]
    assert sorted(group["name"] for group in lines(run, "groups", "--tag", "web")) == ["mail", "order.close"]
    assert run("failed", "retry", "--tag", "other").stderr == "delayq: No failed job matches.\n"
    assert [line["id"] for line in lines(run, "retry", "--tag", "web", "--name", "mail")] == ["mail-1"]
    assert [line["id"] for line in lines(run, "forget", "--tag", "web", "--yes")] == ["close-3"]
    assert failed_by_queue(failures) == {"mail": 0, "orders": 3}


def test_queues_may_be_named_one_by_one(run: Run, failures: DelayQ) -> None:
    failures.schedule("n", id="n-1", queue="else", delay="1h")
    failures.archive("n-1", queue="else")
    assert ids(run, "list", "--queue", "orders", "--queue", "mail") == ids(run, "list", "--queue", "orders,mail")
    assert "n-1" not in ids(run, "list", "--queue", "orders", "--queue", "mail")
    assert "n-1" in ids(run, "list")


def test_nothing_that_fits_is_told(run: Run, failures: DelayQ) -> None:
    for words in (("list", "--name", "refund"), ("groups", "--name", "refund")):
        end = run("failed", *words)
        assert (end.exit_code, end.stderr) == (0, "delayq: No failed job matches.\n")


@pytest.mark.parametrize("words", ["flush", "prune --older 1s", "forget --all", "forget --all --name order.*"])
def test_a_queue_that_cannot_be_read_is_told_before_the_question(run: Run, server: redis.Redis, words: str) -> None:
    server.sadd("delayq:queues", "hurt")
    server.set("delayq:{hurt}:failed", "no set")
    end = run("failed", *words.split())
    assert end.exit_code == 1
    assert "hurt" in end.stderr and "No failed job matches" not in end.stderr


@pytest.mark.parametrize("words", ["list", "groups", "retry", "forget --yes"])
def test_an_invalid_filter_is_refused_even_without_queues(run: Run, words: str) -> None:
    refused = run("failed", *words.split(), "--since", "garbage").exception
    assert isinstance(refused, InvalidInput)


def test_groups_cover_all_queues_and_their_signature_chooses(run: Run, failures: DelayQ) -> None:
    large, *small = lines(run, "groups")
    assert (large["count"], large["message"], large["queues"]) == (3, "no order #", ["mail", "orders"])
    assert {group["count"] for group in small} == {1}
    assert ids(run, "list", "--signature", large["signature"]) == ["close-3", "close-2", "close-1"]
    table = run("failed", "groups", "--queue", "mail", "--limit", "1")
    assert [line.split()[1:3] for line in table.stdout.splitlines()] == [["JOBS", "NAME"], ["1", "order.close"]]
    assert table.stderr == "delayq: The groups count only 1 failed job, but more match. Use a higher --limit.\n"
    retried = run("failed", "retry", "--signature", large["signature"])
    assert retried.stderr == "delayq: 3 jobs retried: 1 in mail, 2 in orders.\n"


def test_retry_all_means_the_queues_that_list_shows(run: Run, failures: DelayQ) -> None:
    retried = run("failed", "retry", "--all", "--json")
    assert (retried.exit_code, retried.stderr) == (0, "delayq: 5 jobs retried: 2 in mail, 3 in orders.\n")
    assert json.loads(retried.stdout.splitlines()[0]) == {"id": "close-1", "queue": "orders", "outcome": "scheduled"}
    assert failed_by_queue(failures) == {"mail": 0, "orders": 0}
    again = run("failed", "retry", "--all")
    assert (again.exit_code, again.stdout, again.stderr) == (0, "", "delayq: No failed job matches.\n")


def test_retry_all_of_one_queue_leaves_the_others(run: Run, failures: DelayQ) -> None:
    assert run("failed", "retry", "--all", "--queue", "orders", "--rate", "1000/s").exit_code == 0
    assert failed_by_queue(failures) == {"mail": 2, "orders": 0}


def test_an_id_is_found_in_the_queue_that_has_it(run: Run, failures: DelayQ) -> None:
    assert json.loads(run("failed", "show", "pay-1", "--json").stdout)["error"]["message"] == "the bank is closed"
    assert "the bank is closed" in run("failed", "show", "pay-1").stdout
    retried = run("failed", "retry", "pay-1", "mail-1", "--json")
    assert [json.loads(line)["queue"] for line in retried.stdout.splitlines()] == ["orders", "mail"]
    forgotten = run("failed", "forget", "close-3")
    assert (forgotten.stdout, forgotten.stderr) == (
        "close-3  forgotten in queue mail\n",
        "delayq: 1 job deleted: 1 in mail.\n",
    )
    assert failed_by_queue(failures) == {"mail": 0, "orders": 2}


def test_retry_gives_one_job_another_payload(run: Run, failures: DelayQ) -> None:
    assert run("failed", "retry", "pay-1", "--data", '{"order_id":7}').stdout == "pay-1  scheduled in queue orders\n"
    assert json.loads(run("show", "pay-1", "--queue", "orders", "--json").stdout)["data"] == {"order_id": 7}


def test_a_refused_job_keeps_no_other_from_its_retry(run: Run, failures: DelayQ, server: redis.Redis) -> None:
    server.hdel("delayq:{orders}:jobs", "close-1")
    ended = run("failed", "retry", "close-1", "nope", "pay-1", "--queue", "orders")
    assert (ended.exit_code, ended.stdout) == (4, "pay-1  scheduled in queue orders\n")
    assert ended.stderr.splitlines() == [
        "delayq: The payload of the job 'close-1' is lost, so the job cannot be retried. "
        "`delayq failed forget close-1 --queue orders` deletes the job.",
        "delayq: No job 'nope' is known in the queue 'orders'. `delayq failed list` lists the ids.",
        "delayq: 1 job retried: 1 in orders.",
    ]


@pytest.mark.parametrize(("word", "done"), [("retry", "scheduled"), ("forget", "forgotten")])
def test_a_refused_id_is_told_as_json(run: Run, failures: DelayQ, word: str, done: str) -> None:
    failures.schedule("waits", id="waits", queue="orders", delay="1h")
    ended = run("failed", word, "nope", "waits", "pay-1", "no id", "--json")
    assert ended.exit_code == 4
    assert [json.loads(line) for line in ended.stdout.splitlines()] == [
        {"id": "nope", "queue": None, "outcome": "unknown"},
        {"id": "waits", "queue": "orders", "outcome": "refused"},
        {"id": "pay-1", "queue": "orders", "outcome": done},
    ]


def test_a_refused_retry_is_told_as_json(run: Run, failures: DelayQ, server: redis.Redis) -> None:
    server.hdel("delayq:{orders}:jobs", "close-1")
    ended = run("failed", "retry", "close-1", "--queue", "orders", "--json")
    assert (ended.exit_code, json.loads(ended.stdout)) == (
        4,
        {"id": "close-1", "queue": "orders", "outcome": "refused"},
    )


@pytest.mark.parametrize("words", [("retry", "--all"), ("forget", "--all", "--yes")], ids=" ".join)
def test_an_id_that_is_none_keeps_no_other_from_its_change(
    run: Run, failures: DelayQ, server: redis.Redis, words: tuple[str, ...]
) -> None:
    server.zadd("delayq:{orders}:failed", {"no id": 1})
    ended = run("failed", *words)
    assert (ended.exit_code, len(ended.stdout.splitlines())) == (2, 5)
    assert ended.stderr.startswith("delayq: The id 'no id' is not valid.")


def test_a_damaged_queue_keeps_no_other_from_its_retry(run: Run, failures: DelayQ, server: redis.Redis) -> None:
    server.set("delayq:{orders}:failed", "no sorted set")
    for words in (("list",), ("groups",), ("retry", "--all"), ("flush", "--yes")):
        ended = run("failed", *words)
        assert (ended.exit_code, "WRONGTYPE" in ended.stderr) == (1, True), words
    assert failures.stats("mail")[0].failed == 0


def test_forget_drops_what_was_chosen(run: Run, failures: DelayQ) -> None:
    forgotten = run("failed", "forget", "--name", "order.close", "--yes", "--json")
    assert [json.loads(line)["id"] for line in forgotten.stdout.splitlines()] == ["close-1", "close-2", "close-3"]
    assert failed_by_queue(failures) == {"mail": 1, "orders": 1}


def test_flush_and_prune_tell_numbers_by_queue(run: Run, failures: DelayQ, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PROGRESS_EVERY", 0.0)
    pruned = run("failed", "prune", "--older", "30d", "--yes", "--json")
    assert [json.loads(line) for line in pruned.stdout.splitlines()] == [
        {"queue": "mail", "deleted": 0},
        {"queue": "orders", "deleted": 0},
    ]
    assert pruned.stderr.endswith("delayq: No failed job matches.\n")
    flushed = run("failed", "flush", "--queue", "orders", "--yes")
    assert (flushed.exit_code, flushed.stdout) == (0, "orders  3 jobs deleted\n")
    assert flushed.stderr == "delayq: 3 deleted in orders …\ndelayq: 3 jobs deleted: 3 in orders.\n"
    assert failed_by_queue(failures) == {"mail": 2, "orders": 0}
    assert run("failed", "flush", "--queue", "orders").stderr == "delayq: No failed job matches.\n"


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("list", "--queue", "ordres"), 3, "No queue 'ordres' is known. `delayq stats` lists the queues."),
        (("list", "--signature", "x"), 2, "--signature 'x' is not a signature. `delayq failed groups` lists all"),
        (("list", "--since", "x"), 2, "--since 'x' is not a duration."),
        (("list", "--since", "1h", "--until", "2h"), 2, "--since '1h' is after until '2h'. Swap the two times."),
        (("show", "nope"), 3, "No job 'nope' is known in any queue. `delayq failed list` lists the ids."),
        (("show", "nope", "--queue", "orders"), 3, "No job 'nope' is known in the queue 'orders'."),
        (("show", "waits"), 4, "The job 'waits' in the queue 'orders' is scheduled, not failed."),
        (
            ("show", "both"),
            2,
            "The job 'both' has failed in several queues: mail, orders. Name one queue with --queue.",
        ),
        (("retry",), 2, "No failed job is named. Give ids, or --name, --tag, --since, --until, --signature, or"),
        (("retry", "pay-1", "--all"), 2, "Ids and --all are both given. Leave out one of them."),
        (("retry", "pay-1", "--name", "x"), 2, "Ids and --name are both given."),
        (("retry", "--all", "--rate", "fast"), 2, "--rate 'fast' is not a rate."),
        (("retry", "--all", "--data", "{}"), 2, "--data needs exactly one id. Name one id."),
        (("retry", "pay-1", "--data", "{"), 2, "--data is not JSON"),
        (("forget",), 2, "No failed job is named."),
        (
            ("forget", "--all"),
            2,
            "Delete 7 failed jobs (3 in mail, 4 in orders)? Nothing was done: confirmation",
        ),
        (("flush",), 2, "Nothing was done: confirmation needs a terminal. Add --yes."),
        (("flush", "--queue", "ordres", "--yes"), 3, "No queue 'ordres' is known."),
        (("prune", "--older", "x", "--yes"), 2, "--older 'x' is not a duration."),
        (("prune", "--older", "0s", "--queue", "mail"), 2, "Delete 3 failed jobs (3 in mail)? Nothing was done"),
    ],
)
def test_a_refusal_is_one_sentence_and_its_exit_code(
    tell: Tell, failures: DelayQ, words: list[str], code: int, told: str
) -> None:
    failures.schedule("n", id="waits", queue="orders", delay="1h")
    for queue in ("orders", "mail"):
        failures.schedule("n", id="both", queue=queue, delay="1h")
        failures.archive("both", queue=queue)
    ended, message = tell("failed", *words)
    assert (ended, message.count("\n"), told in message) == (code, 1, True), message


def test_unreachable_redis_ends_with_its_code(run: Run, impatient: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELAYQ_URL", "redis://127.0.0.1:1")
    error = run("failed", "retry", "--all").exception
    assert isinstance(error, DelayqError)
    assert error.exit_code == 5


@pytest.mark.parametrize(("typed", "code", "left"), [("n\n", 1, 5), ("\n", 1, 5), ("y\n", 0, 0)])
def test_a_terminal_is_asked(failures: DelayQ, url: str, typed: str, code: int, left: int) -> None:
    ours, terminal = pty.openpty()
    words = [sys.executable, "-m", "delayq", "--url", url, "failed", "flush"]
    with subprocess.Popen(words, stdin=terminal, stderr=terminal, stdout=subprocess.PIPE, text=True) as command:
        os.close(terminal)
        os.write(ours, typed.encode())
        stdout, _ = command.communicate(timeout=60)
        assert command.returncode == code
    assert stdout == ("" if code else "mail  2 jobs deleted\norders  3 jobs deleted\n")
    assert sum(failed_by_queue(failures).values()) == left
    asked = os.read(ours, 4096).decode()
    os.close(ours)
    assert "Delete 5 failed jobs (2 in mail, 3 in orders)? [y/N] " in asked
