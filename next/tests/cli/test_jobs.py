"""Commands on jobs: each on a real server, with its refusals and exit codes."""

import json
import logging
from typing import Any

import pytest
import redis

from delayq import DelayQ
from delayq.core.errors import OutcomeUnknown
from tests.cli.conftest import Run, Tell
from tests.support.proxy import LOGIN, server_that_answers

NAMED = ("order-42", "--queue", "orders")


@pytest.fixture
def client(url: str) -> DelayQ:
    return DelayQ(url)


def answer(run: Run, *words: str) -> Any:
    end = run(*words, "--json")
    assert end.exit_code == 0, end.output
    return json.loads(end.stdout)


def test_run_now_ends_the_wait_of_a_job(run: Run) -> None:
    run("schedule", "order.close", "--id", *NAMED, "--in", "1h")
    ran = answer(run, "run-now", *NAMED)
    assert (ran["id"], ran["queue"], ran["state"], ran["outcome"]) == ("order-42", "orders", "ready", "ready")
    assert answer(run, "show", *NAMED)["state"] == "ready"


def test_reschedule_gives_a_job_a_new_due_time(run: Run) -> None:
    run("schedule", "order.close", "--id", *NAMED, "--in", "1h")
    moved = answer(run, "reschedule", *NAMED, "--at", "2035-01-01 12:00", "--tz", "Europe/Berlin")
    assert (moved["due"], moved["outcome"]) == ("2035-01-01T11:00:00.000Z", "rescheduled")
    twice = answer(run, "reschedule", *NAMED, "--at", "2034-10-29 02:30", "--tz", "Europe/Berlin", "--fold", "1")
    assert twice["due"] == "2034-10-29T01:30:00.000Z"
    text = run("reschedule", *NAMED, "--in", "2h").stdout
    assert text.startswith("order-42  rescheduled: scheduled in queue orders, due ")


def test_a_unique_key(run: Run) -> None:
    by_key = ("schedule", "n", "--in", "1h", "--unique", "order-42")
    assert answer(run, *by_key, "--id", "a")["outcome"] == "created"
    kept = answer(run, *by_key)
    assert (kept["id"], kept["outcome"], kept["state"]) == ("a", "kept", "scheduled")
    assert run("cancel", "a").stdout == "a  cancelled\n"
    assert answer(run, *by_key)["outcome"] == "created"


def test_a_unique_key_for_some_time(run: Run) -> None:
    for words in (("--unique", "order-42"), ("--data", '{"order_id": 42}')):
        schedule = ("schedule", "n", "--in", "1h", "--unique-for", "1h", *words)
        owner = answer(run, *schedule)
        assert owner["outcome"] == "created"
        assert run("cancel", owner["id"]).exit_code == 0
        assert run(*schedule).stdout == f"{owner['id']}  kept: absent in queue default\n"


def test_archive_gives_up_a_waiting_job(run: Run) -> None:
    run("schedule", "order.close", "--id", *NAMED, "--in", "1h")
    archived = answer(run, "archive", *NAMED, "--reason", "the shop is closed")
    assert archived == {"id": "order-42", "queue": "orders", "outcome": "archived"}
    shown = answer(run, "show", *NAMED)
    assert (shown["state"], shown["error"]["message"]) == ("failed", "the shop is closed")


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("schedule", "n", "--unique", ""), 2, "--unique is ''. Use a text that is not empty, such as invoice-42, or"),
        (("schedule", "n", "--unique", "", "--unique-for", "1h"), 2, "--unique is ''. Use a text"),
        (("schedule", "n", "--unique-for", "0s"), 2, "--unique-for is '0s'."),
        (("run-now", "order-41"), 3, "No job 'order-41' is known in the queue 'default'."),
        (("run-now", "order-42"), 3, "Name the queue: --queue 'orders'."),
        (("run-now", "failed"), 4, "The job 'failed' has failed"),
        (("reschedule", "order-41", "--in", "1h"), 3, "No job 'order-41' is known"),
        (("reschedule", "failed", "--in", "1h"), 4, "The job 'failed' has failed"),
        (("reschedule", "order-42"), 2, "The new due time is missing. Add --in 15m or --at 2026-11-21T15:00:00Z."),
        (("reschedule", "order-42", "--in", "soon"), 2, "--in 'soon' is not a duration."),
        (("archive", "order-42"), 3, "Name the queue: --queue 'orders'."),
        (("show", "order-42"), 3, "Name the queue: --queue 'orders'."),
        (("why", "order-41"), 3, "No job 'order-41' is known in the queue 'default'."),
        (("why", "order-42"), 3, "Name the queue: --queue 'orders'."),
        (("upcoming", "--queue", "ordres"), 3, "No queue 'ordres' is known."),
        (("upcoming", "--span", "x"), 2, "--span 'x' is not a duration."),
        (("upcoming", "--spans", "10001"), 2, "--spans is 10001."),
        (("list", "--queue", "ordres"), 3, "No queue 'ordres' is known."),
    ],
)
def test_a_refusal_is_one_sentence_and_its_exit_code(tell: Tell, words: list[str], code: int, told: str) -> None:
    tell("schedule", "order.close", "--id", *NAMED, "--in", "1h")
    tell("schedule", "order.close", "--id", "failed", "--in", "1h")
    tell("archive", "failed")
    ended, message = tell(*words)
    assert (ended, message.count("\n"), told in message) == (code, 1, True), message


@pytest.mark.parametrize(("id", "code", "answered"), [("order-41", 3, "unknown"), ("failed", 4, "failed")])
def test_an_answer_that_is_a_refusal_is_printed_and_is_the_exit_code(
    run: Run, tell: Tell, id: str, code: int, answered: str
) -> None:
    run("schedule", "order.close", "--id", "failed", "--in", "1h")
    run("archive", "failed")
    for words in (["cancel"], ["archive"], ["run-now"], ["reschedule", "--in", "1h"]):
        _, told = tell(*words, id)
        assert told.startswith(("delayq: The ", "delayq: No job ")), words
        end = run(*words, id, "--json")
        assert json.loads(end.stdout) == {"id": id, "queue": "default", "outcome": answered}
        assert getattr(end.exception, "exit_code", end.exit_code) == code


@pytest.mark.parametrize("words", [["show"], ["why"], ["failed", "show"]], ids=" ".join)
def test_the_json_of_an_unknown_job_says_so(run: Run, tell: Tell, words: list[str]) -> None:
    end = run(*words, "order-41", "--json")
    queue = None if words[0] == "failed" else "default"
    assert json.loads(end.stdout) == {"id": "order-41", "queue": queue, "state": "unknown"}
    code, told = tell(*words, "order-41")
    assert (code, "is known in" in told) == (3, True)


def test_show_explains_why_a_job_can_be_unknown(run: Run, tell: Tell) -> None:
    run("schedule", "n", "--id", "order-41", "--in", "1h")
    run("cancel", "order-41")
    assert tell("show", "order-41")[1] == (
        "delayq: No job 'order-41' is known in the queue 'default'. A cancelled job is deleted, and so is a completed "
        "job without a retention.\n"
    )


def test_archive_explains_a_refusal(run: Run, tell: Tell) -> None:
    assert tell("archive", "order-41")[1] == (
        "delayq: The queue default has no job order-41: the job was completed, cancelled or deleted, or never "
        "existed.\n"
    )


@pytest.mark.parametrize(
    "words", [["cancel"], ["archive"], ["run-now"], ["reschedule", "--in", "1h"], ["show"], ["why"]], ids=" ".join
)
def test_a_queue_that_is_not_known_is_told_before_the_job(tell: Tell, words: list[str]) -> None:
    tell("schedule", "n", "--id", "order-42", "--queue", "orders", "--in", "1h")
    code, told = tell(*words, "order-42", "--queue", "order")
    assert (code, told) == (3, "delayq: No queue 'order' is known. `delayq stats` lists the queues.\n")


Change = tuple[list[str], str, dict[str, object]]

CHANGES: list[Change] = [
    (["schedule", "n", "--in", "2h", "--id", "new"], "delayq show new --queue default", {"outcome": "created"}),
    (["cancel", "waiting"], "delayq show waiting --queue default", {"outcome": "cancelled"}),
    (["archive", "waiting"], "delayq show waiting --queue default", {"outcome": "archived"}),
    (["run-now", "waiting"], "delayq show waiting --queue default", {"outcome": "ready"}),
    (["reschedule", "waiting", "--in", "2h"], "delayq show waiting --queue default", {"outcome": "rescheduled"}),
    (["failed", "retry", "failed"], "delayq show failed --queue default", {"outcome": "scheduled"}),
    (["queue", "set", "default", "--lease", "2m"], "delayq queue show default", {"lease_ms": 120_000}),
]
"""Commands that change something, the command that checks each, and a part of what it prints."""


def verb(change: Change) -> str:
    return " ".join(change[0][:2])


@pytest.mark.parametrize("change", CHANGES, ids=verb)
def test_a_change_that_is_not_confirmed_is_printed_with_its_check(
    run: Run, client: DelayQ, change: Change, impatient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    words, check, printed = change
    for id in ("waiting", "failed"):
        client.schedule("n", id=id, delay="1h")
    client.archive("failed")
    monkeypatch.setenv("DELAYQ_DURABILITY", "replicas:1")
    end = run(*words, "--json")
    assert f"The change is in effect. Check with: {check}" in f"{end.exception} {end.stderr}"
    assert json.loads(end.stdout).items() >= printed.items()


@pytest.mark.parametrize("change", CHANGES[:2], ids=verb)
def test_a_change_with_a_lost_answer_is_printed_with_its_check(run: Run, change: Change, impatient: None) -> None:
    words, check, _ = change
    with server_that_answers(*LOGIN, b"") as silent:
        end = run("--url", silent, *words, "--json")
    assert isinstance(end.exception, OutcomeUnknown)
    assert f"Before you repeat the command, check with: {check}" in str(end.exception)
    assert json.loads(end.stdout) == {"id": check.split()[2], "queue": "default", "outcome": "uncertain"}


def test_the_id_that_was_made_for_a_job_with_a_lost_answer_is_printed(run: Run, impatient: None) -> None:
    with server_that_answers(*LOGIN, b"") as silent:
        end = run("--url", silent, "schedule", "order.close", "--in", "1h", "--json")
    assert isinstance(end.exception, OutcomeUnknown)
    assert [json.loads(end.stdout)["id"]] == end.exception.ids


def listed(run: Run, *words: str) -> list[str]:
    return [json.loads(line)["id"] for line in run("list", "--json", *words).stdout.splitlines()]


def test_the_help_says_which_jobs_are_retries(run: Run) -> None:
    """A snooze costs no attempt, so a snoozed job can be scheduled again without being listed."""
    assert "retry = scheduled jobs with ATTEMPTS above 0" in " ".join(run("list", "--help").stdout.split())


def test_jobs_are_listed_by_name_and_retry(run: Run, client: DelayQ) -> None:
    run("schedule", "order.close", "--id", "close", "--in", "1h")
    run("schedule", "mail", "--id", "mail", "--in", "2h")
    tried = b'{"v":1,"id":"tried","name":"order.pay","queue":"default","data":{},"attempts":2,"created_ms":1}'
    client.push_raw(tried, delay="3h")
    assert listed(run) == ["close", "mail", "tried"]
    assert listed(run, "--name", "order.*") == ["close", "tried"]
    assert listed(run, "--state", "retry") == ["tried"]
    assert listed(run, "--state", "retry", "--name", "mail") == []
    assert listed(run, "--limit", "3") == ["close", "mail", "tried"]
    table = run("list", "--limit", "1")
    assert [line.split()[0] for line in table.stdout.splitlines()] == ["ID", "close"]
    assert table.stderr == "delayq: The list has only 1 job, but more match. Use a higher --limit.\n"


def test_upcoming_counts_what_falls_due(run: Run) -> None:
    for delay in ("30m", "90m", "95m", "30h"):
        run("schedule", "order.close", "--queue", "orders", "--in", delay)
    found = answer(run, "upcoming", "--queue", "orders", "--span", "1h", "--spans", "24")
    assert (found["counts"][:3], sum(found["counts"]), found["later"], found["overdue"]) == ([1, 2, 0], 3, 1, 0)
    table = run("upcoming", "--queue", "orders", "--span", "1h", "--spans", "24").stdout.splitlines()
    assert [line.split()[-1] for line in table] == ["JOBS", "1", "2", "1"]
    assert table[-1].startswith("later")


def codes(run: Run, *words: str) -> list[str]:
    return [reason["code"] for reason in answer(run, "why", *words)["reasons"]]


def test_why_tells_what_keeps_a_job(run: Run, client: DelayQ) -> None:
    run("schedule", "order.close", "--id", *NAMED, "--in", "1h")
    assert codes(run, *NAMED) == ["due-later", "no-worker"]
    client.pause("orders")
    client.pause_all(reason="broken mail")
    client.start_maintenance(duration="1h", reason="new disks")
    run("run-now", *NAMED)
    assert codes(run, *NAMED) == ["maintenance", "all-paused", "queue-paused", "no-worker", "no-mover", "due"]
    text = run("why", *NAMED).stdout
    assert text.splitlines()[0] == "order-42  scheduled in queue orders"
    assert "the mover takes it next" not in text
    for sentence in (
        "Maintenance is on (new disks) until 2",
        "`delayq maintenance off` ends the maintenance.",
        "All workers are paused (broken mail). `delayq resume --all` ends the pause.",
        "The queue orders is paused. `delayq resume orders` ends the pause.",
        "No worker of delayq serves the queue orders. Start a worker: `delayq work --app MODULE --queue orders`.",
    ):
        assert sentence in text


def test_why_tells_the_error_of_a_failed_job(run: Run) -> None:
    run("schedule", "order.close", "--id", *NAMED, "--in", "1h")
    run("archive", *NAMED, "--reason", "gone")
    assert run("why", *NAMED).stdout == (
        "order-42  failed in queue orders\n"
        "  The job failed after 0 attempts: Archived: gone. "
        "`delayq failed retry order-42 --queue orders` runs it again.\n"
    )


def test_a_change_is_one_line_of_the_audit_log(
    run: Run, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUDO_USER", "ada")
    monkeypatch.setattr("socket.gethostname", lambda: "shop-1")
    caplog.set_level(logging.INFO, "delayq.audit")
    run("schedule", "order.close", "--id", *NAMED, "--in", "1h")
    run("list", "--queue", "orders")
    run("archive", *NAMED, "--reason", "closed")
    run("run-now", *NAMED)
    assert caplog.messages == [
        "ada@shop-1: schedule order.close in orders: created order-42",
        "ada@shop-1: archive order-42 in orders (closed): archived",
        "ada@shop-1: run-now order-42 in orders: The job 'order-42' has failed.",
    ]
    members = ("user", "deed", "on", "reason", "outcome")
    assert [getattr(caplog.records[1], member) for member in members] == [
        "ada@shop-1",
        "archive",
        "order-42 in orders",
        "closed",
        "archived",
    ]


def test_the_audit_log_is_not_shown_by_default(run: Run, server: redis.Redis) -> None:
    assert run("schedule", "order.close", "--in", "1h").stderr == ""


def test_a_job_gets_the_tags_that_list_finds(run: Run, client: DelayQ) -> None:
    assert run("schedule", "order.close", "--id", "order-42", "--tag", "vip", "--tag", "shop=7").exit_code == 0
    run("schedule", "order.close", "--id", "order-43")
    job = client.get("order-42")
    assert job is not None and job.envelope is not None
    assert job.envelope.tags == ["vip", "shop=7"]
    assert json.loads(run("list", "--state", "ready", "--tag", "shop=7", "--json").stdout)["id"] == "order-42"
