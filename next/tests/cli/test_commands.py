"""The commands as a user types them, in this process."""

import json

import pytest
import redis

from delayq.core.errors import DelayqError
from tests.cli.conftest import Run, Tell


def test_schedule_show_list_and_cancel_a_job(run: Run) -> None:
    limits = ("--timeout", "30s", "--deadline", "2h")
    said = json.loads(run("schedule", "order.close", "--in", "15m", "--id", "order-42", *limits, "--json").stdout)
    assert (said["id"], said["queue"], said["state"], said["outcome"]) == (
        "order-42",
        "default",
        "scheduled",
        "created",
    )
    shown = json.loads(run("show", "order-42", "--json").stdout)
    assert (shown["name"], shown["due_ms"], shown["timeout_ms"]) == ("order.close", said["due_ms"], 30_000)
    assert shown["deadline_ms"] > shown["due_ms"]
    (listed,) = run("list", "--json").stdout.splitlines()
    assert json.loads(listed)["id"] == "order-42"
    assert json.loads(run("stats", "--json").stdout)["queues"][0]["scheduled"] == 1
    assert json.loads(run("cancel", "order-42", "--json").stdout)["outcome"] == "cancelled"
    assert run("cancel", "order-42").exit_code == 3


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("schedule", "x", "--in", "soon"), 2, "delay 'soon' is not a duration"),
        (("schedule", "x", "--queue", ""), 2, "The queue name '' is not valid"),
        (("schedule", "x", "--data", "{"), 2, "--data is not JSON"),
        (("show", "nope"), 3, "No job 'nope' is known"),
        (("--url", "http://host", "stats"), 2, "is not the address of a Redis server"),
        (("work",), 2, "No application is named"),
        (("listen",), 2, "No application is named"),
        (("--url", "redis://127.0.0.1:1", "work", "--app", "json", "--once"), 5, "cannot be reached"),
        (("--url", "redis://127.0.0.1:1", "work", "--app", "json", "--max-time", "10ms"), 5, "cannot be reached"),
        (("work", "--app", "json", "--once", "--stop-when-empty-for", "soon"), 2, "stop_when_empty_for 'soon'"),
        (("work", "--app", "./shop.py"), 2, "takes the name of a module"),
    ],
)
def test_a_refusal_is_one_sentence_and_its_exit_code(run: Run, words: list[str], code: int, message: str) -> None:
    error = run(*words).exception
    assert isinstance(error, DelayqError)
    assert (error.exit_code, message in str(error)) == (code, True)


def test_without_an_address_the_next_step_is_told(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DELAYQ_URL")
    error = run("stats").exception
    assert isinstance(error, DelayqError)
    assert (error.exit_code, "Set DELAYQ_URL" in str(error)) == (2, True)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--in", "soon"), "--in 'soon' is not a duration."),
        (("--in", "delay=1"), "--in 'delay=1' is not a duration."),
        (("--in", "1h", "--at", "2035-01-01T00:00Z"), "--at and --in are both given."),
        (("--tz", "Europe/Berlin"), "--tz and --fold need --at, which is not given. Leave them out, or give --at."),
        (("--at", "2034-01-01 15:00"), "--at 2034-01-01 15:00:00 has no offset"),
        (("--at", "2034-01-01 15:00"), "or name the time zone, such as --tz 'Europe/Berlin'."),
        (("--at", "2034-01-01T15:00Z", "--tz", "Europe/Berlin"), "but --tz 'Europe/Berlin' is given too."),
        (("--at", "2034-10-29 02:30", "--tz", "Europe/Berlin"), "with --fold 0 (the first) or --fold 1 (the second)."),
        (("--at", "2034-10-29 02:30", "--tz", "Europe/Berlin", "--fold", "2"), "--fold is 2."),
        (("--tries", "-1"), "--tries is -1."),
        (("--retention", "x"), "--retention 'x' is not a duration."),
        (("--id", "taken", "--on-conflict", "error"), "or use --on-conflict 'keep', 'replace' or 'postpone'."),
        (("--id", "two words"), "The id 'two words' is not valid."),
    ],
)
def test_an_error_names_the_flags_of_the_command_line(tell: Tell, words: list[str], told: str) -> None:
    tell("schedule", "n", "--id", "taken", "--in", "1h")
    code, message = tell("schedule", "n", *words)
    assert (code, told in message) == (4 if "taken" in words else 2, True), message


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("cancel", "elsewhere"), "Name the queue: --queue 'orders'."),
        (
            ("work", "--app", "shop", "--timeout", "soon"),
            "The value of --timeout is not valid: value 'soon' is not a duration.",
        ),
        (
            ("work", "--app", "shop", "--backoff", "soon"),
            "The value of --backoff is not valid: backoff 'soon' is not a duration.",
        ),
        (("--prefix", "{}", "stats"), "The value of --prefix is not valid: '{}': String should match pattern"),
    ],
)
def test_errors_of_other_commands_name_their_flags_too(tell: Tell, words: list[str], told: str) -> None:
    tell("schedule", "n", "--id", "elsewhere", "--queue", "orders", "--in", "1h")
    code, message = tell(*words)
    assert code in (2, 3)
    assert told in message


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["queue", "set", "q", "--shards", "x"], "--shards is 'x'. Use a whole number."),
        (["queue", "set", "q", "--shards", "1.5"], "--shards is '1.5'. Use a whole number."),
        (["list", "--limit", "many"], "--limit is 'many'. Use a whole number."),
        (["list", "--limit", "0"], "--limit is '0'. Use a whole number of at least 1."),
        (["stats", "--days", "91"], "--days is '91'. Use a whole number of at most 90."),
        (["failed", "list", "--limit", "-1"], "--limit is '-1'. Use a whole number of at least 1."),
        (["schedule", "n", "--tries", "x"], "--tries is 'x'. Use a whole number."),
        (["work", "--app", "a", "--processes", ""], "--processes is ''. Use a whole number."),
    ],
)
def test_a_value_that_is_not_a_number_is_refused_in_one_sentence(tell: Tell, words: list[str], told: str) -> None:
    assert tell(*words) == (2, f"delayq: {told}\n")


def test_an_error_of_the_environment_names_the_variable(tell: Tell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELAYQ_TIMEOUT", "soon")
    assert tell("stats")[1].startswith("delayq: The value of DELAYQ_TIMEOUT is not valid: value 'soon' is not a")


@pytest.mark.parametrize("command", ["list", "stats"])
def test_a_queue_that_is_not_known_is_not_an_empty_one(tell: Tell, run: Run, server: redis.Redis, command: str) -> None:
    assert tell(command, "--queue", "ordres") == (
        3,
        "delayq: No queue 'ordres' is known. `delayq stats` lists the queues.\n",
    )
    assert run(command).exit_code == 0  # nobody named the default queue
    server.sadd("delayq:queues", "listed")
    run("schedule", "n", "--queue", "unlisted", "--in", "1h")
    server.srem("delayq:queues", "unlisted")
    for known in ("listed", "unlisted"):
        assert run(command, "--queue", known).exit_code == 0


def test_the_counts_of_a_damaged_queue_are_an_error_beside_those_of_the_others(run: Run, server: redis.Redis) -> None:
    run("schedule", "n", "--queue", "whole", "--in", "1h")
    run("schedule", "n", "--queue", "damaged", "--in", "1h")
    server.set("delayq:{damaged}:failed", "no sorted set")
    table = run("stats")
    assert table.exit_code == 1
    assert [line.split()[:2] for line in table.stdout.splitlines()[1:]] == [["damaged", "-"], ["whole", "1"]]
    assert "WRONGTYPE" in table.stdout.splitlines()[1]
    damaged, whole = json.loads(run("stats", "--json").stdout)["queues"]
    assert ("WRONGTYPE" in damaged["error"], "error" in whole) == (True, False)
