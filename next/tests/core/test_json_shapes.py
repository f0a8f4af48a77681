"""The JSON shapes: the members of the contract, in its order."""

import msgspec

from delayq.core import json_shapes
from delayq.core.envelope import ABSENT, Envelope
from delayq.core.failure import Failure
from delayq.core.names import LOST_JOB
from delayq.core.views import JobInfo, QueueStats

LIST = [
    *("id", "name", "queue", "state", "due_ms", "due", "attempts", "tries", "data"),
    *("tags", "encrypted", "created_ms", "created", "failed_ms", "failed", "forget_ms", "forget"),
]
SHOW = [
    *("error", "result", "retention_ms", "timeout_ms", "deadline_ms", "deadline", "unique", "headers"),
    *("recoveries", "entry", "consumer", "idle_ms", "cancel_asked_ms", "cancel_asked", "progress"),
]
CREATED = 1_795_790_900_508
DUE = 1_795_791_800_516


def job(*, name: str = "order.close", encrypted: bytes = b"", **members: object) -> JobInfo:
    envelope = Envelope(
        v=1,
        id="order-42",
        name=name,
        queue="orders",
        data=msgspec.Raw(b'{"order_id":42}'),
        attempts=2,
        created_ms=CREATED,
        encrypted=msgspec.Raw(encrypted) if encrypted else ABSENT,
    )
    known = {"state": "scheduled", "envelope": envelope, "due_ms": DUE, "raw": b"{}", **members}
    return JobInfo(id="order-42", queue="orders", **known)  # type: ignore[arg-type]


def test_an_answer_to_schedule() -> None:
    shape = json_shapes.of_reference(
        id="order-42", name="order.close", queue="orders", state="scheduled", due_ms=DUE, outcome="created"
    )
    assert msgspec.json.encode(shape) == (
        b'{"id":"order-42","name":"order.close","queue":"orders","state":"scheduled","due_ms":1795791800516,'
        b'"due":"2026-11-27T15:03:20.516Z","outcome":"created"}'
    )


def test_a_job_in_a_list() -> None:
    assert msgspec.json.encode(json_shapes.of_job(job())) == (
        b'{"id":"order-42","name":"order.close","queue":"orders","state":"scheduled","due_ms":1795791800516,'
        b'"due":"2026-11-27T15:03:20.516Z","attempts":2,"tries":null,"data":{"order_id":42},"tags":[],'
        b'"encrypted":false,"created_ms":1795790900508,"created":"2026-11-27T14:48:20.508Z","failed_ms":null,'
        b'"failed":null,"forget_ms":null,"forget":null}'
    )


def test_a_job_in_full_has_the_members_of_a_list_and_more() -> None:
    full = json_shapes.of_job_in_full(job(failure=Failure("E", "m"), entry="1-0", cancel_asked_ms=CREATED))
    assert list(full) == LIST + SHOW
    assert (full["entry"], full["consumer"], full["headers"]) == ("1-0", None, {})
    assert full["cancel_asked"] == "2026-11-27T14:48:20.508Z"
    assert msgspec.json.decode(msgspec.json.encode(full))["error"] == {"type": "E", "message": "m"}


def test_a_job_whose_envelope_cannot_be_read_has_all_members() -> None:
    full = json_shapes.of_job_in_full(job(envelope=None, state="failed", failed_ms=DUE, due_ms=None))
    assert list(full) == LIST + SHOW
    assert (full["name"], full["attempts"], full["data"], full["failed_ms"]) == ("", None, None, DUE)


def test_the_data_of_an_encrypted_job_is_not_shown() -> None:
    shape = json_shapes.of_job(job(encrypted=b'{"v":2}'))
    assert (shape["encrypted"], shape["data"]) == (True, None)


def test_the_attempt_that_succeeded_counts() -> None:
    assert job(state="completed").attempts == 3
    assert job(state="failed").attempts == 2


def test_a_stub_is_a_job_whose_payload_is_lost() -> None:
    assert job(name=LOST_JOB).is_lost and not job().is_lost


def test_the_payload_stays_out_of_the_repr_of_a_job() -> None:
    assert repr(job()) == "JobInfo(id='order-42', queue='orders', name='order.close', state='scheduled')"


def test_the_counts_of_a_queue() -> None:
    assert msgspec.json.encode(json_shapes.of_stats(QueueStats(queue="orders", scheduled=1))) == (
        b'{"queue":"orders","scheduled":1,"ready":0,"reserved":0,"failed":0,"completed":0,"paused":false,'
        b'"overdue_oldest_ms":0}'
    )
    assert QueueStats(queue="q", paused_until_ms=0).paused
