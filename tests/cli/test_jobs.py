"""Commands on jobs, with their answers, shapes and exit codes."""

from __future__ import annotations

import json
import re
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest

from delayq import DelayQ
from delayq.core.outcome import DONE, Ack, GiveUp
from delayq.drivers.base import Settlement
from delayq.drivers.redis_streams import RedisStreams
from tests.cli.conftest import Inline
from tests.support.cli import Cli
from tests.support.job_types import report

NOT_CONFIRMED = 7
SCHEDULED = {"id", "name", "queue", "state", "due_ms", "due", "outcome"}


def test_the_issues_own_sequence(cli: Cli) -> None:
    words = ("schedule", "order.close", "--in", "2s", "--id", "o1", "--data", '{"order_id":1}', "--json")
    first = cli.ok(*words).json
    assert set(first) == SCHEDULED
    assert (first["id"], first["name"], first["queue"]) == ("o1", "order.close", "default")
    assert (first["state"], first["outcome"]) == ("scheduled", "created")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", first["due"])
    assert datetime.fromisoformat(first["due"]).timestamp() * 1000 == first["due_ms"]
    second = cli.ok(*words).json
    assert second == {**first, "outcome": "kept"}
    cancelled = cli("cancel", "o1", "--json")
    assert (cancelled.code, cancelled.json) == (0, {"id": "o1", "queue": "default", "outcome": "cancelled"})
    unknown = cli("cancel", "o1", "--json")
    assert (unknown.code, unknown.json["outcome"]) == (3, "unknown")


def test_an_id_in_another_queue_is_named_and_left_alone(inline: Inline) -> None:
    inline.ok("schedule", "slow", "--id", "o1", "--in", "1h", "--queue", "orders")
    cancelled = inline("cancel", "o1", "--json")
    assert (cancelled.code, cancelled.json) == (3, {"id": "o1", "queue": "default", "outcome": "unknown"})
    for words in (("cancel", "o1"), ("show", "o1"), ("run-now", "o1"), ("reschedule", "o1", "--in", "1m")):
        told = inline(*words)
        assert told.code == 3
        assert "--queue orders" in told.err
    assert inline.ok("show", "o1", "--queue", "orders", "--json").json["state"] == "scheduled"
    assert inline("cancel", "o1", "--queue", "default").err.count("--queue orders") == 0


def test_cancel_says_what_a_job_does_that_it_cannot_stop(inline: Inline, q: DelayQ) -> None:
    """A worker would end it at once; here the test holds it."""
    inline.ok("schedule", "slow", "--id", "s1", "--retention", "1m")
    inline.ok("schedule", "slow", "--id", "d1", "--retention", "1m")
    inline.ok("schedule", "bad", "--id", "b1")
    with closing(RedisStreams(q.connector, q.options).consumer("dq:host:1:a1", ["default"])) as consumer:
        held, done, bad = consumer.fetch([], 3).deliveries
        running = inline("cancel", "s1")
        assert (running.code, running.out) == (4, "running\n")
        assert "--running" in running.err
        asked = inline("cancel", "s1", "--running", "--json")
        assert (asked.code, asked.json["outcome"]) == (0, "running"), "it was asked to stop, as was wished"
        assert inline.ok("show", "s1", "--json").json["cancel_asked_ms"] is not None
        consumer.settle([Settlement(done, Ack(60_000)), Settlement(bad, GiveUp(1, 1, ValueError("no")))])
        consumer.settle([Settlement(held, DONE)])
    assert (inline("cancel", "d1").out, inline("cancel", "d1").code) == ("finished\n", 4)
    assert (inline("cancel", "b1").out, inline("cancel", "b1").code) == ("failed\n", 4)


def test_people_see_the_id_and_when_it_runs(inline: Inline) -> None:
    done = inline.ok("schedule", "order.close", "--in", "15m", "--id", "o1")
    assert done.out == "o1\n"
    assert re.fullmatch(
        r"created in queue default, runs \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z, in (15m|14m 59s)\n", done.err
    )
    assert "kept" in inline.ok("schedule", "order.close", "--in", "15m", "--id", "o1").err
    assert inline.ok("-q", "schedule", "order.close", "--in", "15m", "--id", "o1").err == ""


def test_without_a_time_it_runs_now(inline: Inline) -> None:
    done = inline.ok("schedule", "order.close")
    assert done.err.startswith("created in queue default, ")
    assert len(done.out) == 27  # an id of delayq's own
    assert inline.ok("show", done.out.strip(), "--json").json["state"] in ("scheduled", "ready")


@pytest.mark.parametrize("how", ["inline", "file", "stdin"])
def test_the_payload_arrives_as_it_was_written(cli: Cli, how: str) -> None:
    text = '{\n  "name": "Zoë \\u0007",\n  "price": 1.50, "big": 12345678901234567890\n}\n'
    (cli.folder / "data.json").write_text(text, encoding="utf-8")
    word = {"inline": text, "file": "@data.json", "stdin": "-"}[how]
    cli.ok("schedule", "order.close", "--in", "1h", "--id", "o1", "--data", word, given=text)
    shown = cli.ok("show", "o1", "--json")
    assert len(shown.lines) == 1
    assert shown.json["data"] == json.loads(text)
    assert "1.50" in shown.out


@pytest.mark.parametrize(
    ("at", "more", "due"),
    [
        ("2031-11-21T15:00:00Z", [], "2031-11-21T15:00:00.000Z"),
        ("2031-11-21T16:00:00.250+01:00", [], "2031-11-21T15:00:00.250Z"),
        ("2031-11-21T16:00", ["--tz", "Europe/Berlin"], "2031-11-21T15:00:00.000Z"),
        ("2027-10-31T02:30", ["--tz", "Europe/Berlin", "--fold", "0"], "2027-10-31T00:30:00.000Z"),
        ("2027-10-31T02:30", ["--tz", "Europe/Berlin", "--fold", "1"], "2027-10-31T01:30:00.000Z"),
    ],
)
def test_at(inline: Inline, at: str, more: list[str], due: str) -> None:
    assert inline.ok("schedule", "order.close", "--at", at, *more, "--json").json["due"] == due


def test_options_reach_the_envelope(inline: Inline) -> None:
    inline.ok("schedule", "x", "--id", "o1", "--in", "1h", "--queue", "orders", "--tries", "3", "--retention", "2h")
    shown = inline.ok("show", "o1", "--queue", "orders", "--json").json
    assert (shown["tries"], shown["retention_ms"], shown["attempts"], shown["data"]) == (3, 7_200_000, 0, None)


def test_show_tells_timeout_deadline_and_unique_key(inline: Inline) -> None:
    inline.ok("schedule", "x", "--id", "o1", "--timeout", "90s", "--deadline", "2031-11-21T15:00:00Z", "--unique", "k")
    shown = inline.ok("show", "o1", "--json").json
    assert (shown["timeout_ms"], shown["deadline"]) == (90_000, "2031-11-21T15:00:00.000Z")
    assert shown["unique"]
    text = inline.ok("show", "o1").out
    assert re.search(r"^timeout +(90s|1m 30s|1m30s)$", text, re.MULTILINE)
    assert re.search(r"^deadline +2031-11-21", text, re.MULTILINE)
    assert re.search(rf"^unique +{shown['unique']}$", text, re.MULTILINE)


def test_routes_choose_the_queue(cli: Cli) -> None:
    (cli.folder / "delayq.toml").write_text('[routes]\n"order.*" = "orders"\n')
    assert cli.ok("schedule", "order.close", "--in", "1h", "--json").json["queue"] == "orders"
    assert cli.ok("schedule", "mail.send", "--in", "1h", "--json").json["queue"] == "default"


def test_a_job_has_the_timeout_and_the_deadline_that_schedule_was_given(inline: Inline, q: DelayQ) -> None:
    given = ("--timeout", "90s", "--deadline", "10m")
    due_ms = inline.ok("schedule", "order.close", "--id", "o1", "--in", "1h", *given, "--json").json["due_ms"]
    info = q.get("o1")
    assert info is not None
    assert info.envelope is not None
    assert info.envelope.timeout_ms == 90_000
    assert info.envelope.deadline_ms == pytest.approx(due_ms + 600_000, abs=1_000)
    refused = inline("schedule", "order.close", "--in", "1h", "--deadline", "2020-01-01T00:00:00Z")
    assert refused.code == 2
    assert "deadline" in refused.err


def test_archive_puts_a_waiting_job_among_the_failed(inline: Inline) -> None:
    inline.ok("schedule", "order.close", "--id", "o1", "--in", "1h")
    done = inline("archive", "o1", "--reason", "the shop is closed", "--json")
    assert (done.code, done.json) == (0, {"id": "o1", "queue": "default", "outcome": "archived"})
    assert "the shop is closed" in inline.ok("failed", "list").out
    again = inline("archive", "o1")
    assert (again.code, again.out) == (4, "failed\n")
    assert inline("archive", "nobody").code == 3
    assert inline.ok("failed", "retry", "o1").code == 0


def test_a_second_job_with_the_same_unique_key_is_the_first(inline: Inline) -> None:
    keyed = ("schedule", "order.close", "--in", "1h", "--unique", "invoice:42", "--json")
    first, second = inline.ok(*keyed).json, inline.ok(*keyed).json
    assert (first["outcome"], second["outcome"], second["id"]) == ("created", "kept", first["id"])
    other = inline.ok("schedule", "order.close", "--in", "1h", "--unique", "invoice:43", "--json").json
    assert other["outcome"] == "created"


def test_unique_for_locks_the_payload_or_the_key_whatever_becomes_of_the_job(inline: Inline) -> None:
    def schedule(data: str, *more: str) -> str:
        words = ("schedule", "order.close", "--in", "1h", "--unique-for", "10m", "--data", data, *more, "--json")
        answer = inline.ok(*words).json
        if answer["outcome"] == "created":
            inline.ok("cancel", answer["id"])
        return str(answer["outcome"])

    assert [schedule('{"n": 1}'), schedule('{"n": 1}'), schedule('{"n": 2}')] == ["created", "kept", "created"]
    keyed = ("--unique", "invoice")
    assert [schedule('{"n": 3}', *keyed), schedule('{"n": 4}', *keyed)] == ["created", "kept"]
    refused = inline("schedule", "order.close", "--unique-for", "10m", "--on-conflict", "replace")
    assert (refused.code, refused.out) == (2, "")


@pytest.mark.parametrize(("choice", "outcome"), [("keep", "kept"), ("replace", "replaced"), ("postpone", "postponed")])
def test_on_conflict(inline: Inline, q: DelayQ, choice: str, outcome: str) -> None:
    q.schedule("x", delay="1h", id="o1")
    assert (
        inline.ok("schedule", "x", "--in", "2h", "--id", "o1", "--on-conflict", choice, "--json").json["outcome"]
        == outcome
    )


def test_on_conflict_error(inline: Inline, q: DelayQ) -> None:
    q.schedule("x", delay="1h", id="o1")
    done = inline("schedule", "x", "--in", "2h", "--id", "o1", "--on-conflict", "error", "--json")
    assert (done.code, done.out) == (4, "")
    assert "o1" in done.err


def test_reschedule_and_run_now(inline: Inline, q: DelayQ) -> None:
    q.schedule("x", delay="1h", id="o1")
    moved = inline.ok("reschedule", "o1", "--in", "3h", "--json").json
    assert (moved["id"], moved["outcome"], moved["state"]) == ("o1", "rescheduled", "scheduled")
    distance = datetime.fromisoformat(moved["due"]) - datetime.now(UTC)
    assert timedelta(hours=2, minutes=59) < distance <= timedelta(hours=3, seconds=5)
    assert "runs 2031-01-01T00:00:00.000Z" in inline.ok("reschedule", "o1", "--at", "2031-01-01T00:00:00Z").err
    assert inline.ok("run-now", "o1", "--json").json["outcome"] in ("ready", "scheduled")
    info = q.get("o1")
    assert info is not None
    assert info.due_ms is not None
    assert info.due_ms < moved["due_ms"] - 2 * 3_600_000


@pytest.mark.parametrize("words", [("run-now", "o1"), ("reschedule", "o1", "--in", "1m"), ("show", "o1")])
def test_an_unknown_id(inline: Inline, words: tuple[str, ...]) -> None:
    done = inline(*words, "--queue", "orders")
    assert (done.code, done.out) == (3, "")
    assert "'o1'" in done.err
    assert "'orders'" in done.err
    assert "--queue" in done.err


def test_no_queue_means_the_default_one_and_is_never_searched(cli: Cli, inline: Inline, q: DelayQ) -> None:
    q.schedule("x", delay="1h", id="o1", queue="orders")
    assert inline("cancel", "o1").code == 3
    (cli.folder / "delayq.toml").write_text('queue = "orders"\n')
    assert inline("cancel", "o1").code == 0


def test_what_is_stored_is_told_though_not_confirmed(inline: Inline, q: DelayQ) -> None:
    """A program goes on with the id on stdout; that it is not as safe as was asked says the exit code."""
    unsafe = ("--durability", "replicas:1")
    words = ("schedule", "x", "--in", "1h", *unsafe)
    done = inline(*words, "--id", "o1", "--json")
    assert (done.code, set(done.json), done.json["outcome"]) == (NOT_CONFIRMED, SCHEDULED, "created")
    assert "0 of 1 replicas" in done.err
    info = q.get("o1")
    assert info is not None
    assert (done.json["id"], done.json["due_ms"]) == ("o1", info.due_ms)
    done = inline("reschedule", "o1", "--in", "2h", *unsafe, "--json")
    assert (done.code, done.json["id"], done.json["outcome"]) == (NOT_CONFIRMED, "o1", "rescheduled")
    done = inline("cancel", "o1", *unsafe, "--json")
    assert (done.code, done.json) == (NOT_CONFIRMED, {"id": "o1", "queue": "default", "outcome": "cancelled"})
    done = inline(*words)
    assert (done.code, q.get(done.lines[0]) is None, len(done.lines)) == (NOT_CONFIRMED, False, 1)
    inline.ok("queue", "set", "default", "--durability", "replicas:1")
    done = inline("run-now", done.lines[0], "--json")
    assert (done.code, done.json["outcome"]) == (NOT_CONFIRMED, "ready")


def test_list(inline: Inline, q: DelayQ) -> None:
    for n in range(3):
        q.schedule("order.close", delay=f"{3 - n}h", id=f"o{n}", queue="orders")
    q.schedule("mail.send", delay="1h", id="m1")
    ids = [job["id"] for job in inline.ok("list", "--json").documents]
    assert ids == ["m1", "o2", "o1", "o0"]
    assert [job["id"] for job in inline.ok("list", "--queue", "orders", "--limit", "2", "--json").documents] == [
        "o2",
        "o1",
    ]
    assert "--limit" in inline.ok("list", "--limit", "2").err
    assert "--limit" not in inline.ok("list", "--limit", "4").err
    assert [job["id"] for job in inline.ok("list", "--name", "mail.*", "--json").documents] == ["m1"]
    assert inline.ok("list", "--state", "failed", "--json").out == ""
    table = inline.ok("list").lines
    assert table[0].split() == ["id", "name", "queue", "state", "when", "attempts"]
    assert table[1].split()[:4] == ["m1", "mail.send", "default", "scheduled"]


def test_show_for_people(inline: Inline, q: DelayQ) -> None:
    q.schedule("x", {"n": 1}, delay="1h", id="o1")
    fields = dict(line.split(None, 1) for line in inline.ok("show", "o1").lines)
    assert (fields["id"], fields["name"], fields["state"], fields["data"]) == ("o1", "x", "scheduled", '{"n":1}')


def test_upcoming(inline: Inline, q: DelayQ) -> None:
    for delay in ("30s", "90s", "95s", "2h"):
        q.schedule("x", delay=delay)
    histogram = inline.ok("upcoming", "--json").json
    assert (histogram["queue"], histogram["span_ms"], histogram["overdue"]) == ("default", 60_000, 0)
    assert (sum(histogram["counts"]), len(histogram["counts"]), histogram["later"]) == (3, 60, 1)
    assert [line.split()[-2:] for line in inline.ok("upcoming").lines[1:]][-1] == ["1", "#" * 20]


def test_stats(inline: Inline, q: DelayQ) -> None:
    assert inline.ok("stats", "--json").json == {"queues": []}
    q.schedule("x", delay="1h")
    q.schedule("x", delay="1h", queue="orders")
    assert inline.ok("stats", "--json").json == {
        "queues": [
            {"queue": queue, "scheduled": 1, "ready": 0, "reserved": 0, "failed": 0, "completed": 0, "paused": False,
             "overdue_oldest_ms": 0}
            for queue in ("default", "orders")
        ]
    }  # fmt: skip
    assert [one["queue"] for one in inline.ok("stats", "--queue", "orders", "--json").json["queues"]] == ["orders"]


def test_the_name_is_told_where_it_is_known(inline: Inline, q: DelayQ) -> None:
    q.schedule("order.close", delay="1h", id="o1")
    for words in (("reschedule", "o1", "--in", "2h"), ("run-now", "o1")):
        assert set(inline.ok(*words, "--json").json) == SCHEDULED - {"name"}


def test_no_limit_of_tries(inline: Inline, q: DelayQ) -> None:
    inline.ok("schedule", "x", "--in", "1h", "--id", "o1", "--tries", "0")
    assert inline.ok("show", "o1", "--json").json["tries"] == 0


def test_job_types(inline: Inline, q: DelayQ) -> None:
    nothing = inline.ok("job-types")
    assert nothing.err.strip() == "No attempt of a delayq worker ended."
    report(q, "orders", "order.close", [100.0] * 96 + [4_000.0] * 4, done=90, released=6, failed=4)
    report(q, "mail", "mail.send", [20.0] * 200, done=200)
    lines = inline.ok("job-types").lines
    assert lines[0].split("  ")[0] == "name"
    assert [line.split()[0] for line in lines[1:]] == ["mail.send", "order.close"]
    close = lines[2].split()
    assert (close[1], close[3:6], close[-1]) == ("100", ["10.00%", "4", "6"], "orders")
    by_p99 = inline.ok("job-types", "--sort", "p99", "--days", "90", "--json").json["job_types"]
    assert [one["name"] for one in by_p99] == ["order.close", "mail.send"]
    assert by_p99[0]["p99_ms"] == pytest.approx(4_000, rel=0.1)
    [mail] = inline.ok("job-types", "--queue", "mail", "--hours", "1", "--json").json["job_types"]
    assert (mail["attempts"], mail["failure_rate"], mail["queues"]) == (200, 0.0, ["mail"])


@pytest.mark.parametrize("words", ["--hours 25", "--days 91", "--hours 1 --days 1", "--sort x"])
def test_windows_and_orders_of_job_types(inline: Inline, words: str) -> None:
    assert inline("job-types", *words.split()).code == 2
