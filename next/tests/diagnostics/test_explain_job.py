"""Why a job has not run: facts in, reasons out."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from delayq.core.encryption import FORMAT
from delayq.core.envelope import ABSENT, Envelope
from delayq.core.failure import Failure
from delayq.core.views import Control, JobInfo, QueueStats, WorkerInfo
from delayq.diagnostics.explain_job import Facts, Reason, explain_job

NOW = 1_795_790_000_000
WORKING = WorkerInfo("dq:a:1:x", ["orders", "mail"], {"state": "working", "runs": 2})
STATS = QueueStats(queue="orders", ready=3, lease_ms=30_000, mover_tick_ms=NOW - 5_000, now_ms=NOW)
SUSPECT = JobInfo(id="evil", queue="mail", state="reserved", raw=b"", envelope=None, consumer="dq:a:1:x", recoveries=3)


def reasons(
    state: str,
    *,
    attempts: int = 0,
    headers: dict[str, str] | None = None,
    deadline_ms: int | None = None,
    encrypted: msgspec.Raw = ABSENT,
    control: Control = Control(NOW),  # noqa: B008
    workers: list[WorkerInfo] | None = None,
    stats: dict[str, Any] | None = None,
    suspects: Sequence[JobInfo] = (),
    **members: Any,
) -> list[Reason]:
    envelope = Envelope(
        v=1,
        id="order-42",
        name="order.close",
        queue="orders",
        data=msgspec.Raw(b"{}"),
        attempts=attempts,
        created_ms=NOW,
        headers=headers,
        deadline_ms=deadline_ms,
        encrypted=encrypted,
    )
    job = JobInfo(**{"id": "order-42", "queue": "orders", "state": state, "raw": b"", "envelope": envelope, **members})
    found = msgspec.structs.replace(STATS, **(stats or {}))
    return explain_job(Facts(job, found, control, [WORKING] if workers is None else workers, 100, suspects))


def codes(state: str, **facts: Any) -> list[str]:
    return [reason.code for reason in reasons(state, **facts)]


@pytest.mark.parametrize(
    ("state", "facts", "expected"),
    [
        ("scheduled", {"due_ms": NOW + 60_000}, ["due-later"]),
        ("scheduled", {"due_ms": NOW - 1_000}, ["due"]),
        ("scheduled", {"due_ms": NOW + 60_000, "attempts": 1}, ["retry"]),
        ("scheduled", {"due_ms": NOW + 60_000, "headers": {"delayq-unknown-since": "1"}}, ["unknown-name"]),
        ("scheduled", {"due_ms": NOW + 60_000, "headers": {"delayq-refused": "3 mail"}}, ["limit"]),
        ("scheduled", {"due_ms": NOW + 60_000, "headers": {"delayq-refused": "3 mail"}, "attempts": 1}, ["limit"]),
        ("scheduled", {"due_ms": NOW + 60_000, "workers": []}, ["due-later", "no-worker"]),
        ("scheduled", {"due_ms": NOW - 1_000, "workers": []}, ["no-worker", "due"]),
        ("scheduled", {"due_ms": NOW - 1_000, "stats": {"ready": 60, "reserved": 40}}, ["high-water", "due"]),
        ("scheduled", {"due_ms": NOW - 1_000, "stats": {"mover_tick_ms": NOW - 60_000}}, ["no-mover", "due"]),
        ("scheduled", {"due_ms": NOW - 1_000, "stats": {"paused_until_ms": 0}}, ["queue-paused", "due"]),
        ("scheduled", {"due_ms": NOW + 1_000, "stats": {"paused_until_ms": 0}}, ["due-later", "queue-paused"]),
        ("scheduled", {"due_ms": NOW + 60_000, "envelope": None}, ["unreadable", "due-later"]),
        ("scheduled", {"due_ms": NOW + 60_000, "deadline_ms": NOW + 59_999}, ["deadline-before-due", "due-later"]),
        ("scheduled", {"due_ms": NOW + 60_000, "deadline_ms": NOW + 60_000}, ["due-later"]),
        ("scheduled", {"due_ms": NOW + 60_000, "deadline_ms": NOW}, ["deadline-passed", "due-later"]),
        (
            "scheduled",
            {"due_ms": NOW + 60_000, "deadline_ms": NOW + 1, "attempts": 1},
            ["deadline-before-due", "retry"],
        ),
        ("ready", {"envelope": None}, ["unreadable", "ready"]),
        ("ready", {"deadline_ms": NOW}, ["deadline-passed", "ready"]),
        ("ready", {"deadline_ms": NOW + 1}, ["ready"]),
        ("ready", {}, ["ready"]),
        ("ready", {"control": Control(NOW, paused_until_ms=0)}, ["all-paused", "ready"]),
        ("ready", {"control": Control(NOW, maintenance_until_ms=0)}, ["maintenance", "ready"]),
        ("ready", {"workers": [WorkerInfo("w", ["mail"], {"state": "working"})]}, ["no-worker", "ready"]),
        ("ready", {"workers": [WorkerInfo("w", ["orders"], {"state": "idle"})]}, ["ready"]),
        ("ready", {"workers": [WorkerInfo("w", ["orders"], {"state": "paused"})]}, ["workers-idle", "ready"]),
        ("ready", {"workers": [WorkerInfo("w", ["orders"], {"state": "crashed"})]}, ["workers-crashed", "ready"]),
        ("reserved", {"consumer": "w", "idle_ms": 3_000}, ["running"]),
        ("reserved", {"consumer": "w", "idle_ms": 14_000}, ["running"]),
        ("reserved", {"consumer": "w", "idle_ms": 16_000}, ["lease-silent"]),
        ("reserved", {"consumer": "w", "idle_ms": 40_000}, ["lease-silent"]),
        ("reserved", {"consumer": "w", "idle_ms": 3_000, "cancel_asked_ms": NOW}, ["running", "stopping"]),
        ("reserved", {"consumer": "w", "idle_ms": 3_000, "recoveries": 1}, ["running"]),
        ("reserved", {"consumer": "w", "idle_ms": 3_000, "recoveries": 2}, ["running", "suspect"]),
        ("reserved", {"consumer": ""}, ["acknowledged"]),
        ("ready", {"suspects": [SUSPECT]}, ["waits-for-suspect", "ready"]),
        ("scheduled", {"suspects": [SUSPECT], "due_ms": NOW - 1_000}, ["due"]),
        ("failed", {"attempts": 5}, ["failed"]),
        ("failed", {"envelope": None, "raw": b"garbage"}, ["unreadable"]),
        ("failed", {"envelope": None, "raw": b""}, ["payload-lost"]),
        ("completed", {"forget_ms": NOW + 60_000}, ["finished"]),
    ],
)
def test_the_weightiest_reason_comes_first(state: str, facts: dict[str, Any], expected: list[str]) -> None:
    assert codes(state, **facts) == expected


def test_sentences_name_the_value_and_the_next_step() -> None:
    failure = Failure("ValueError", "no such order.")
    (retry,) = reasons("scheduled", due_ms=NOW + 300_000, attempts=2, failure=failure)
    assert retry.what.startswith("Attempt 2 did not succeed: ValueError: no such order. The next attempt is due in 5m,")
    (failed,) = reasons("failed", attempts=5, failure=failure)
    assert failed == Reason(
        "failed",
        "The job failed after 5 attempts: ValueError: no such order.",
        "`delayq failed retry order-42 --queue orders` runs it again.",
    )
    (silent,) = reasons("reserved", consumer="dq:b:2:y", idle_ms=90_000)
    assert silent.what == (
        "dq:b:2:y has the job, but has not renewed the lease for 1m30s. A lease lasts 30s. This consumer has probably "
        "died."
    )
    (ready,) = reasons("ready")
    assert ready.what == "The job waits for its turn. The queue orders has 3 ready jobs and up to 2 reserved jobs."


@pytest.mark.parametrize("age_ms", [4_000, 9_000])
def test_a_due_job_is_no_promise_of_a_mover(age_ms: int) -> None:
    (due,) = reasons("scheduled", due_ms=NOW - 3_000, stats={"mover_tick_ms": NOW - age_ms})
    assert due.what == (
        f"The job has been due for 3s, and waits for a mover. A mover last served the queue {age_ms // 1000}s ago."
    )


def test_a_silent_mover_is_named_with_its_time() -> None:
    (silent, due) = reasons("scheduled", due_ms=NOW - 3_000, stats={"mover_tick_ms": NOW - 12_000})
    assert silent.what == "No mover has served the queue orders for 12s."
    assert due.what == "The job has been due for 3s."
    never, _ = reasons("scheduled", due_ms=NOW - 3_000, stats={"mover_tick_ms": 0})
    assert never.what == "No mover has served the queue orders so far."


def test_a_deadline_before_the_due_time_is_named_with_both_times() -> None:
    doomed, _ = reasons("scheduled", due_ms=NOW + 120_000, deadline_ms=NOW + 60_000)
    assert doomed == Reason(
        "deadline-before-due",
        "The job is due at 2026-11-27T14:35:20.000Z, after its deadline at 2026-11-27T14:34:20.000Z, so the job will "
        "fail with DeadlinePassed and not run.",
        'Schedule the job again with a later deadline: cancel it first, or use `on_conflict="replace"`.',
    )


def test_a_suspect_is_named_with_the_child_that_runs_it() -> None:
    waits, _ = reasons("ready", suspects=[SUSPECT])
    assert waits == Reason(
        "waits-for-suspect",
        "dq:a:1:x takes no other jobs for up to 30s, because it runs the job evil of the queue mail, whose worker "
        "vanished 3 times.",
        "Read the log of the worker to find out why its processes died.",
    )
    _, suspect = reasons("reserved", consumer="w", idle_ms=3_000, recoveries=2)
    assert suspect.what == (
        "The worker of this job vanished 2 times, and the job may be the cause. Therefore the job should run alone, "
        "and first waits for the other jobs of its process, for up to 30s."
    )


def test_the_unknown_field_is_named() -> None:
    failure = Failure("UnknownJob", "This worker cannot read the job 'order.close': unknown field `gift`.")
    (unknown,) = reasons("scheduled", due_ms=NOW + 60_000, headers={"delayq-unknown-since": "1"}, failure=failure)
    assert "unknown field `gift`. The next check is due in 1m" in unknown.what


def test_the_limit_is_named() -> None:
    (limit,) = reasons("scheduled", due_ms=NOW + 2_000, headers={"delayq-refused": "1 mail"})
    assert limit.what.startswith(
        "The limit mail refused the job 1 time in a row, which costs no attempt. The job asks again in 2s, at "
    )
    assert limit.next == "`delayq limit list` shows how many jobs each limit counts."
    (again,) = reasons("scheduled", due_ms=NOW - 1, headers={"delayq-refused": "3 mail"})
    assert "refused the job 3 times in a row" in again.what and "asks again now." in again.what


def test_a_silent_lease_needs_a_worker_only_if_no_mover_runs() -> None:
    (waits,) = reasons("reserved", consumer="w", idle_ms=25_000)
    assert waits.what == (
        "w has the job, but has not renewed the lease for 25s. A lease lasts 30s. This consumer has probably died."
    )
    assert waits.next.startswith(
        "If a janitor runs, the job is delivered again in about 15s. Janitors run beside movers: a mover last served "
    )
    (stuck,) = reasons("reserved", consumer="w", idle_ms=25_000, stats={"mover_tick_ms": NOW - 60_000})
    assert stuck.next == "Start a worker: `delayq work --app MODULE --queue orders`, or `delayq move`."


def test_without_the_list_of_workers_nothing_is_said_about_them() -> None:
    envelope = Envelope(v=1, id="a", name="n", queue="orders", data=msgspec.Raw(b"{}"), attempts=0, created_ms=NOW)
    job = JobInfo(id="a", queue="orders", state="ready", raw=b"", envelope=envelope)
    assert [reason.code for reason in explain_job(Facts(job, STATS, Control(NOW), None, 100))] == ["ready"]


@pytest.mark.parametrize("due_ms", [NOW + 60_000, NOW - 1_000])
def test_a_payload_that_this_program_cannot_decrypt_is_the_last_reason(due_ms: int) -> None:
    *others, reason = reasons("scheduled", due_ms=due_ms, encrypted=FORMAT)
    assert others
    assert (reason.code, reason.what) == (
        "not-decrypted",
        "The payload of the job 'order-42' is encrypted, and no keys are set.",
    )
    assert "DELAYQ_KEYS" in reason.next
