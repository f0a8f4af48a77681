"""The JSON shapes: the members of the contract, in its order, with msgspec and with pydantic."""

from dataclasses import fields, is_dataclass
from typing import Any

import msgspec
import pytest
from pydantic import TypeAdapter

from delayq.core.batch_info import BatchInfo, MissingJob
from delayq.core.envelope import ABSENT, Envelope
from delayq.core.failure import Failure
from delayq.core.failure_groups import FailedGroup
from delayq.core.json_shapes import answers, batches, jobs, queues, setup, workers
from delayq.core.json_shapes.answers import (
    DeletedShape,
    JobIdShape,
    MovedJobShape,
    OutcomeShape,
    QueueOutcomeShape,
    ScheduledJobShape,
)
from delayq.core.json_shapes.batches import (
    BatchOutcomeShape,
    BatchRetryShape,
    BatchShape,
    MissingJobShape,
    UnknownBatchShape,
)
from delayq.core.json_shapes.jobs import (
    FailedGroupShape,
    FailedJobShape,
    FullJobShape,
    JobShape,
    ReasonShape,
    UnknownJobShape,
    WhyShape,
)
from delayq.core.json_shapes.members import members_of
from delayq.core.json_shapes.queues import (
    HoldsShape,
    PauseShape,
    QueueShape,
    StatsShape,
    UnknownQueueShape,
    UpcomingShape,
)
from delayq.core.json_shapes.setup import KeyShape, ServerStoppedShape, SettingOriginShape, SettingShape
from delayq.core.json_shapes.workers import ControlShape, MoveShape, RunningJobShape, WorkerShape
from delayq.core.names import LOST_JOB
from delayq.core.views import Control, DayCounts, JobInfo, QueueStats, QueueView, Upcoming, WorkerInfo

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


LISTED = (
    '"id":"order-42","name":"order.close","queue":"orders","state":"{}","due_ms":1795791800516,'
    '"due":"2026-11-27T15:03:20.516Z","attempts":2,"tries":null,"data":{{"order_id":42}},"tags":[],'
    '"encrypted":false,"created_ms":1795790900508,"created":"2026-11-27T14:48:20.508Z","failed_ms":null,'
    '"failed":null,"forget_ms":null,"forget":null'
)


def printed(shape: object) -> str:
    return msgspec.json.encode(shape).decode()


def test_a_job_in_a_list() -> None:
    assert printed(JobShape.of(job())) == f"{{{LISTED.format('scheduled')}}}"


def test_a_failed_job_in_a_list_has_its_error() -> None:
    failure = Failure("E", "m", at_ms=2, attempt=2, history=[Failure("F", "first", "line 1")])
    assert printed(FailedJobShape.of(job(failure=failure))) == (
        f'{{{LISTED.format("scheduled")},"error":{{"type":"E","message":"m","at_ms":2,"attempt":2,'
        '"history":[{"type":"F","message":"first","traceback":"line 1"}]}}'
    )


def test_a_job_in_full_has_the_members_of_a_list_and_more() -> None:
    running = job(
        state="reserved",
        failure=Failure("E", "m"),
        stored_result=[1],
        recoveries=1,
        entry="1-0",
        consumer="dq:a:1:x",
        idle_ms=7,
        cancel_asked_ms=CREATED,
        progress={"done": 1},
    )
    assert printed(FullJobShape.of(running)) == (
        f'{{{LISTED.format("reserved")},"error":{{"type":"E","message":"m"}},"result":[1],"retention_ms":null,'
        '"timeout_ms":null,"deadline_ms":null,"deadline":null,"unique":null,"headers":{},"recoveries":1,'
        '"entry":"1-0","consumer":"dq:a:1:x","idle_ms":7,"cancel_asked_ms":1795790900508,'
        '"cancel_asked":"2026-11-27T14:48:20.508Z","progress":{"done":1},"shard":null,"limit":null}'
    )


def test_a_job_whose_envelope_cannot_be_read_has_all_members() -> None:
    full = FullJobShape.of(job(envelope=None, state="failed", failed_ms=DUE, due_ms=None))
    assert (full.name, full.attempts, full.data, full.failed_ms) == ("", None, None, DUE)
    assert (full.tags, full.headers, full.entry, full.error) == ([], {}, None, None)


def test_data_and_result_of_an_encrypted_job_are_not_shown() -> None:
    shape = FullJobShape.of(job(encrypted=b'{"v":2}', state="completed", stored_result="token"))
    assert (shape.encrypted, shape.data, shape.result) == (True, None, None)


def test_the_attempt_that_succeeded_counts() -> None:
    assert job(state="completed").attempts == 3
    assert job(state="failed").attempts == 2


def test_a_stub_is_a_job_whose_payload_is_lost() -> None:
    assert job(name=LOST_JOB).is_lost and not job().is_lost


def test_the_payload_stays_out_of_the_repr_of_a_job() -> None:
    assert repr(job()) == "JobInfo(id='order-42', queue='orders', name='order.close', state='scheduled')"


ABOUT: dict[str, Any] = {
    "host": "shop-1",
    "pid": 42,
    "supervisor": 41,
    "started_ms": CREATED,
    "state": "working",
    "done": 7,
    "held": 2,
    "running": [{"id": "order-42", "name": "order.close", "queue": "orders", "started_ms": CREATED}],
    "runs": 1,
}


def test_a_worker_of_this_release_has_a_shape_and_any_other_keeps_its_members() -> None:
    about = ABOUT
    known = WorkerShape.of(WorkerInfo("dq:shop-1:42:x", ["orders"], about), now_ms=CREATED + 1_500)
    assert isinstance(known, WorkerShape)
    assert (known.started_ms, known.started) == (CREATED, "2026-11-27T14:48:20.508Z")
    assert known.running == [
        RunningJobShape("order-42", "order.close", "orders", CREATED, "2026-11-27T14:48:20.508Z", 1_500)
    ]
    about_known = {**about, "started": "2026-11-27T14:48:20.508Z"}
    assert members_of(known) == {
        "name": "dq:shop-1:42:x",
        "queues": ["orders"],
        **about_known,
        "running": known.running,
    }
    for other in (
        {**about, "memory_bytes": 1},
        {**about, "pid": "?"},
        {**about, "running": [{"id": "order-42", "queue": "orders"}]},
        {**about, "running": [{**about["running"][0], "for_ms": 1}]},
        {"runs": 1},
    ):
        shape = WorkerShape.of(WorkerInfo("w", ["orders"], other), now_ms=CREATED)
        assert printed(shape) == printed({"name": "w", "queues": ["orders"], **other})


BATCH = BatchInfo(
    id="import",
    name="monthly",
    total=4,
    pending=1,
    succeeded=2,
    failed=1,
    skipped=0,
    allows_failures=True,
    created_ms=CREATED,
)


def test_a_batch_has_its_counts_and_its_failed_jobs() -> None:
    missing = MissingJob("orders", "import.3", "import.3", "unsent")
    assert printed(BatchShape.of(BATCH).with_jobs([("orders", "import.2")], [missing])) == (
        '{"id":"import","name":"monthly","state":"running","total":4,"pending":1,"succeeded":2,"failed":1,"skipped":0,'
        '"per_cent":75,"allows_failures":true,"created_ms":1795790900508,"created":"2026-11-27T14:48:20.508Z",'
        '"cancelled_ms":null,"cancelled":null,"finished_ms":null,"finished":null,'
        '"failed_jobs":[{"id":"import.2","queue":"orders"}],"without_job":[{"id":"import.3","queue":"orders",'
        '"member":"import.3","reason":"unsent"}]}'
    )


STATS = [QueueStats(queue="a"), QueueStats(queue="b", error="no"), QueueStats(queue="c")]
EXAMPLES: list[Any] = [
    JobIdShape("order-42", "orders"),
    MissingJobShape("import.3", "orders", "import.3", "unsent"),
    ScheduledJobShape.of(
        id="order-42", name="order.close", queue="orders", state="scheduled", due_ms=DUE, outcome="created"
    ),
    MovedJobShape.of(id="order-42", queue="orders", state="ready", due_ms=None, outcome="ready"),
    OutcomeShape("order-42", "orders", "done"),
    QueueOutcomeShape("orders", "removed"),
    DeletedShape("orders", 12),
    BatchShape.of(BATCH),
    BatchShape.of(BATCH).with_jobs([("orders", "import.2")], []),
    UnknownBatchShape("import"),
    BatchOutcomeShape("import", "cancelled"),
    BatchRetryShape("import", 1),
    JobShape.of(job()),
    FailedJobShape.of(job(failure=Failure("E", "m", history=[Failure("F", "first")]))),
    FullJobShape.of(job(failure=Failure("E", "m"), stored_result={"total": 1.5}, progress=[1], entry="1-0")),
    FailedGroupShape.of(FailedGroup("0" * 16, "n", "E", "m #", 2, CREATED, DUE, ["orders"], "order-42", "orders")),
    ReasonShape("due-later", "The job is due in 1h.", ""),
    WhyShape.of(job(), [ReasonShape("due-later", "The job is due in 1h.", "")]),
    *StatsShape.of(STATS, {"c": [DayCounts("2026-11-27", {"acked": 2})]}).queues,
    StatsShape.of(STATS, {"c": [DayCounts("2026-11-27", {"acked": 2})]}),
    PauseShape.of("orders", 0),
    PauseShape.of("orders", DUE).with_running([JobIdShape("order-42", "orders")]),
    UpcomingShape.of(Upcoming("orders", CREATED, 60_000, 1, [0, 2], 3)),
    UnknownQueueShape("orders"),
    HoldsShape(1, 0, 0, 0, 0, 0),
    UnknownJobShape("order-42", None),
    QueueShape.of(
        QueueView(
            "orders",
            30_000,
            1,
            None,
            {"scheduled": 1, "ready_or_reserved": 0, "failed": 0, "completed": 0, "other": 0, "outbox": 0},
        )
    ),
    ControlShape.of(Control(CREATED, maintenance_until_ms=0, maintenance_since_ms=CREATED, reason="disks")),
    ControlShape.of(Control(CREATED, paused_until_ms=DUE)).with_running([JobIdShape("order-42", "orders")]),
    RunningJobShape("order-42", "order.close", "orders", CREATED, "2026-11-27T14:48:20.508Z", 1_500),
    WorkerShape.of(WorkerInfo("w", ["orders"], ABOUT), now_ms=CREATED + 1_500),
    MoveShape(3),
    SettingShape("tries", 5),
    SettingOriginShape("timeout", "1m", "default", None),
    ServerStoppedShape(True, "/data"),
    KeyShape("key"),
]


def test_there_is_an_example_of_each_shape() -> None:
    found = {
        shape
        for module in (answers, batches, jobs, queues, setup, workers)
        for shape in vars(module).values()
        if isinstance(shape, type) and is_dataclass(shape)
    }
    assert {type(example) for example in EXAMPLES} == found


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: type(example).__name__)
def test_pydantic_writes_the_same_json(example: Any) -> None:
    assert TypeAdapter(type(example)).dump_json(example).decode() == printed(example)
    assert TypeAdapter(type(example)).validate_json(printed(example)) == example


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: type(example).__name__)
def test_a_time_is_in_two_members(example: Any) -> None:
    names = {field.name for field in fields(example)}
    durations = {"retention_ms", "timeout_ms", "idle_ms", "lease_ms", "span_ms", "overdue_oldest_ms", "runtime_ms"}
    times = {name for name in names if name.endswith("_ms")} - durations
    assert {name.removesuffix("_ms") for name in times} <= names


def test_a_pause_without_an_end_has_no_text() -> None:
    assert (PauseShape.of("q", 0).paused, PauseShape.of("q", 0).paused_until) == (True, None)
    assert (PauseShape.of("q", None).paused, PauseShape.of("q", None).paused_until) == (False, None)
    assert QueueStats(queue="q", paused_until_ms=0).paused
