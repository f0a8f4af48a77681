"""Commands on batches: each on a real server, with its refusals and exit codes."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from pydantic import SecretStr

from delayq import BatchInfo, DelayQ, Manager, Settings, batch, set_manager
from delayq.core.errors import BatchNotFound, CallRefused, Conflict, OutcomeUnknown
from delayq.jobs.dispatch import _by_name
from delayq.manager import current_manager
from delayq.redis.calls import batches as calls
from delayq.redis.connection.leaf import drive
from delayq.redis.keys import Keys
from delayq.redis.operations.batches import BatchOperations
from tests.cli.conftest import Run, Tell

KEYS = Keys()


@pytest.fixture
def client(url: str, server: redis.Redis) -> Iterator[DelayQ]:
    manager = Manager(Settings(url=SecretStr(url), queue="q"))
    set_manager(manager)
    yield manager.connection().client
    manager.close()


def send(batch_id: str, size: int = 3, **more: Any) -> BatchInfo:
    members = [_by_name("step", {}).on_queue("q").delay("1h") for _ in range(size)]
    return batch(members, id=batch_id, **more).dispatch()


def fail(client: DelayQ, *job_ids: str) -> None:
    """Let jobs fail, and relay their ends."""
    for job_id in job_ids:
        assert client.archive(job_id, queue="q") == "archived"
    relay()


def relay() -> None:
    keeper = current_manager().connection().backend.queue_keeper(["q"], name="test")
    while keeper.follow_up("q").relayed:
        pass


def lines(run: Run, *words: str) -> list[Any]:
    end = run("batch", *words, "--json")
    assert end.exit_code == 0, end.output
    return [json.loads(line) for line in end.stdout.splitlines()]


def test_list_shows_the_newest_batches_first(run: Run, client: DelayQ, server: redis.Redis) -> None:
    for n in range(3):
        send(f"b{n}", name=f"import {n}")
    server.zadd(KEYS.batches, {f"b{n}": n for n in range(3)})  # they may have been created in the same millisecond
    newest, *others = lines(run, "list")
    assert [info["id"] for info in (newest, *others)] == ["b2", "b1", "b0"]
    assert (newest["name"], newest["state"], newest["total"], newest["pending"]) == ("import 2", "running", 3, 3)
    table = run("batch", "list", "--limit", "1").stdout.splitlines()
    assert table[0].split() == ["ID", "NAME", "STATE", "TOTAL", "PENDING", "SUCCEEDED", "FAILED", "SKIPPED", "CREATED"]
    assert [line.split()[:4] for line in table[1:]] == [["b2", "import", "2", "running"]]


def test_list_leaves_out_batches_that_are_no_longer_kept(run: Run, client: DelayQ, server: redis.Redis) -> None:
    send("kept")
    server.zadd(KEYS.batches, {"kept": 1, "gone": 2, "also-gone": 3})
    assert [info["id"] for info in lines(run, "list", "--limit", "1")] == ["kept"]
    assert server.zrange(KEYS.batches, 0, -1) == ["kept"]


def test_list_without_batches_prints_a_note(run: Run) -> None:
    end = run("batch", "list")
    assert (end.exit_code, end.stderr) == (0, "delayq: No batch is known.\n")
    assert run("-q", "batch", "list").stderr == ""


def test_show_names_failed_jobs_and_the_next_step(run: Run, client: DelayQ) -> None:
    send("b1", name="import", allow_failures=True)
    fail(client, "b1.1")
    (shown,) = lines(run, "show", "b1")
    assert (shown["state"], shown["per_cent"], shown["failed"], shown["allows_failures"]) == ("running", 33, 1, True)
    assert shown["failed_jobs"] == [{"id": "b1.1", "queue": "q"}]
    end = run("batch", "show", "b1")
    rows = dict(line.split(None, 1) for line in end.stdout.splitlines())
    assert (rows["id"], rows["name"], rows["pending"], rows["succeeded"]) == ("b1", "import", "2", "0")
    assert end.stdout.splitlines()[-1].split() == ["failed", "job", "b1.1", "in", "queue", "q"]
    assert "cancelled" not in rows
    assert end.stderr == (
        "delayq: `delayq failed show b1.1 --queue q` shows the error of a job. "
        "`delayq batch retry b1` retries all failed jobs of the batch.\n"
    )
    assert run("failed", "show", "b1.1", "--queue", "q").exit_code == 0


def test_show_names_members_without_a_job_and_the_next_step(
    run: Run, client: DelayQ, monkeypatch: pytest.MonkeyPatch
) -> None:
    send("sent")
    assert lines(run, "show", "sent")[0]["without_job"] == []
    assert run("batch", "show", "sent").stderr == ""

    async def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(BatchOperations, "_send_members", die)
        with pytest.raises(KeyboardInterrupt):
            send("b1", 22)
    (shown,) = lines(run, "show", "b1")
    assert (shown["state"], len(shown["without_job"])) == ("running", 20)
    end = run("batch", "show", "b1")
    assert end.stdout.count("no job ") == 20
    assert end.stderr == (
        "delayq: Not sent: if the program that dispatched the batch has died, repeat the dispatch with the same id, "
        "or end the batch: `delayq batch cancel b1`.\n"
    )
    assert run("-q", "batch", "show", "b1").stderr == ""
    send("b1", 22)
    assert lines(run, "show", "b1")[0]["without_job"] == []
    client.cancel("b1.1", queue="q")
    assert lines(run, "show", "b1")[0]["without_job"] == [
        {"id": "b1.1", "queue": "q", "member": "b1.1", "reason": "ended"}
    ]
    end = run("batch", "show", "b1")
    assert end.stdout.splitlines()[-1].endswith("b1.1 in queue q, sent before")
    assert "Sent before: the job has ended" in end.stderr


def test_show_explains_a_link_that_waits_for_its_unique_key(run: Run, client: DelayQ) -> None:
    send("b1", 1)
    note = calls.note_batch(KEYS, "b1", [("b1.0", "next", "mails 2 j2")], keep_ms=1_000, keep_broken_ms=1_000)
    drive(client._operations._session.executor.run(note))
    assert lines(run, "show", "b1")[0]["without_job"] == [
        {"id": "j2", "queue": "mails", "member": "b1.0", "reason": "next"}
    ]
    end = run("batch", "show", "b1")
    assert end.stdout.splitlines()[-1].split(None, 2)[2] == "j2 in queue mails, next link of b1.0"
    assert "the unique key of this link is taken" in end.stderr
    assert "cancel" not in end.stderr
    client.batches.cancel("b1")
    end = run("batch", "show", "b1")
    assert end.stdout.splitlines()[-1].split(None, 2)[2] == "j2 in queue mails, next link of b1.0"
    assert end.stderr == ""


def test_show_names_a_lost_member_of_a_cancelled_batch(run: Run, client: DelayQ, server: redis.Redis) -> None:
    send("b1", 2)
    server.xadd("delayq:{q}:outbox", {"ended": "done", "job": "{}"})
    server.delete("delayq:{q}:jobs", "delayq:{q}:scheduled")
    client.batches.cancel("b1")
    end = run("batch", "show", "b1")
    assert (end.stdout.count("no job "), lines(run, "show", "b1")[0]["state"]) == (2, "cancelling")
    assert "`delayq batch cancel b1`" in end.stderr
    relay()
    client.batches.cancel("b1")
    assert lines(run, "show", "b1")[0]["state"] == "cancelled"


def test_show_lists_at_most_20_failed_jobs(run: Run, client: DelayQ) -> None:
    send("b1", 22, allow_failures=True)
    fail(client, *[f"b1.{n}" for n in range(22)])
    assert len(lines(run, "show", "b1")[0]["failed_jobs"]) == 20
    assert run("batch", "show", "b1").stderr.startswith("delayq: Only 20 of 22 failed jobs are listed.\n")


def test_cancel_removes_the_waiting_jobs(run: Run, client: DelayQ) -> None:
    send("b1", finally_=_by_name("clean", {}).on_queue("q"))
    assert lines(run, "cancel", "b1", "--yes") == [{"id": "b1", "outcome": "cancelled"}]
    assert (client.stats("q")[0].scheduled, lines(run, "show", "b1")[0]["state"]) == (0, "cancelling")
    relay()
    (shown,) = lines(run, "show", "b1")
    assert (shown["state"], shown["skipped"], shown["cancelled"] is None) == ("cancelled", 3, False)
    assert [job.name for state in ("scheduled", "ready") for job in client.iter_jobs(state)] == ["clean"]


def test_a_cancel_that_could_not_send_the_callbacks_sends_them_when_it_is_repeated(
    run: Run, client: DelayQ, server: redis.Redis
) -> None:
    send("b1", finally_=_by_name("tell", {}).on_queue("calls"))
    server.delete(KEYS.of_queue("q", "jobs"))  # so that the cancel itself ends the batch
    server.set(KEYS.of_queue("calls", "jobs"), "another type")
    refused = run("batch", "cancel", "b1", "--yes").exception
    assert isinstance(refused, CallRefused)
    assert refused.hint == "The cancellation of the batch 'b1' is not complete. Cancel the batch again later."
    server.delete(KEYS.of_queue("calls", "jobs"))
    assert isinstance(run("batch", "cancel", "b1", "--yes").exception, Conflict)
    (sent,) = client.stats("calls")
    assert sent.scheduled + sent.ready == 1


def test_show_prints_the_counts_also_when_the_queue_of_a_member_cannot_be_read(
    run: Run, client: DelayQ, server: redis.Redis
) -> None:
    send("b1")
    server.delete(KEYS.of_queue("q", "jobs"))
    server.set(KEYS.of_queue("q", "jobs"), "another type")
    shown = run("batch", "show", "b1", "--json")
    assert isinstance(shown.exception, CallRefused)
    about = json.loads(shown.stdout)
    assert (about["pending"], about["failed_jobs"], about["without_job"]) == (3, [], None)
    text = run("batch", "show", "b1")
    assert isinstance(text.exception, CallRefused)
    assert re.search(r"^pending +3$", text.stdout, re.MULTILINE)


def test_cancel_ends_a_batch_whose_producer_has_died(run: Run, client: DelayQ) -> None:
    executor = client._operations._session.executor
    opening = {"plan": b'{"id":"b1"}', "allow_failures": False, "seal": False}
    drive(executor.run(calls.open_batch(KEYS, "b1", members=[("b1.0", "q 1")], **opening)))  # type: ignore[arg-type]
    done = calls.note_batch(KEYS, "b1", [("b1.0", "done", "")], keep_ms=1_000_000, keep_broken_ms=1_000_000)
    drive(executor.run(done))
    assert lines(run, "show", "b1")[0]["state"] == "running"
    assert lines(run, "cancel", "b1", "--yes") == [{"id": "b1", "outcome": "cancelled"}]
    assert lines(run, "show", "b1")[0]["state"] == "finished"
    assert run("batch", "cancel", "b1", "--yes").exception is not None


def test_retry_runs_the_failed_jobs_again(run: Run, client: DelayQ) -> None:
    send("b1", allow_failures=True)
    fail(client, "b1.0", "b1.2")
    assert run("batch", "retry", "b1").stdout == "b1  2 jobs retried\n"
    assert client.get("b1.0", queue="q") is not None
    assert client.stats("q")[0].failed == 0
    assert lines(run, "retry", "b1") == [{"id": "b1", "retried": 0}]


def test_a_refused_job_keeps_no_other_from_its_retry(run: Run, client: DelayQ, server: redis.Redis) -> None:
    send("b1", allow_failures=True)
    fail(client, "b1.0", "b1.1", "b1.2")
    server.hdel(KEYS.of_queue("q", "jobs"), "b1.1")
    end = run("batch", "retry", "b1", "--json")
    assert json.loads(end.stdout) == {"id": "b1", "retried": 2}
    assert "The payload of the job 'b1.1' is lost" in str(end.exception)
    assert client.stats("q")[0].failed == 1


@pytest.fixture
def finished(run: Run, client: DelayQ) -> BatchInfo:
    info = send("done")
    run("batch", "cancel", "done", "--yes")
    relay()
    return info


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("show", "nope"), 3, "No batch has the id 'nope'. A batch is kept for 7 days after its end"),
        (("cancel", "nope"), 3, "No batch has the id 'nope'."),
        (("retry", "nope"), 3, "No batch has the id 'nope'."),
        (("cancel", "done"), 4, "The batch 'done' has finished. Only a running batch can be cancelled."),
        (("cancel", "runs"), 2, "Cancel the 3 pending members of the batch runs? Nothing was done: confirmation"),
        (("show", "b 1"), 2, "The id 'b 1' of a batch is not valid."),
        (("retry", "x" * 201), 2, "(201 characters) of a batch is not valid. Use 1 to 200"),
    ],
)
def test_a_refusal_is_one_sentence_and_its_exit_code(
    tell: Tell, finished: BatchInfo, words: list[str], code: int, told: str
) -> None:
    send("runs")
    ended, message = tell("batch", *words)
    assert (ended, message.count("\n"), told in message) == (code, 1, True), message


def test_a_refusal_is_told_as_json(run: Run, finished: BatchInfo) -> None:
    assert json.loads(run("batch", "show", "nope", "--json").stdout) == {"id": "nope", "state": "unknown"}
    assert json.loads(run("batch", "cancel", "nope", "--json").stdout) == {"id": "nope", "outcome": "unknown"}
    assert json.loads(run("batch", "retry", "nope", "--json").stdout) == {"id": "nope", "outcome": "unknown"}
    assert json.loads(run("batch", "cancel", "done", "--json").stdout) == {"id": "done", "outcome": "finished"}


def test_a_lost_reply_is_told_with_the_command_that_checks_it(
    run: Run, client: DelayQ, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lose(self: BatchOperations, batch_id: str) -> BatchInfo:
        raise OutcomeUnknown("Redis did not reply.")

    send("b1")
    monkeypatch.setattr(BatchOperations, "_catch_up", lose)
    end = run("batch", "cancel", "b1", "--yes")
    assert end.stdout == "b1  uncertain\n"
    assert str(end.exception) == "Redis did not reply. Repeat the command, or check with: delayq batch show b1"
    assert json.loads(run("batch", "cancel", "b1", "--yes", "--json").stdout) == {"id": "b1", "outcome": "uncertain"}


def test_a_connection_can_be_chosen(run: Run, client: DelayQ, url: str) -> None:
    send("b1")
    assert isinstance(run("--prefix", "other", "batch", "show", "b1").exception, BatchNotFound)
    assert run("--prefix", "other", "batch", "list").stderr == "delayq: No batch is known.\n"


@pytest.mark.parametrize("field", ["total", "created_ms", "cancelled_ms"])
def test_a_damaged_number_does_not_stop_the_list(run: Run, client: DelayQ, server: redis.Redis, field: str) -> None:
    send("b1")
    send("b2")
    server.hset("delayq:{batch:b1}:plan", field, "many")
    assert {line["id"] for line in lines(run, "list")} == {"b1", "b2"}
    assert run("batch", "show", "b1").exit_code == 0


def test_a_damaged_member_does_not_stop_the_command(run: Run, client: DelayQ, server: redis.Redis) -> None:
    send("b1")
    server.hset("delayq:{batch:b1}:pending", b"\xff", "x")
    assert run("batch", "show", "b1").exit_code == 0
