"""ack.lua, release.lua, fail.lua, hand_back.lua: what becomes of a delivered job."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from delayq.backends.values import Acked, Delivery, DeliveryRef, Failed, Released
from delayq.core.errors import BackendError
from delayq.redis.calls import delivery
from delayq.redis.calls.call import Call
from delayq.redis.keys import GROUP
from tests.support.queue import FAILURE, HOUR, NOW, OTHER, PLAIN, SECOND, Job, QueueOnServer, envelope_of

SETTLE: dict[str, Callable[[QueueOnServer, list[Job]], Sequence[int]]] = {
    "ack": lambda queue, jobs: queue.ack_all(*(Acked("orders", job.id, job.entry) for job in jobs)),
    "ack (plain)": lambda queue, jobs: queue.ack_all(*(Acked("orders", job.id, job.entry) for job in jobs), alone=True),
    "ack with retention": lambda queue, jobs: queue.ack_all(
        *(Acked("orders", job.id, job.entry, HOUR) for job in jobs)
    ),
    "release": lambda queue, jobs: queue.release_all(
        *(Released("orders", job.id, job.entry, HOUR, b"again", FAILURE) for job in jobs)
    ),
    "fail": lambda queue, jobs: queue.fail_all(
        *(Failed("orders", job.id, job.entry, b"last", FAILURE) for job in jobs)
    ),
    "hand_back": lambda queue, jobs: queue.hand_back_all(*jobs),
}
STATES_AFTER = {
    "ack": "absent",
    "ack (plain)": "absent",
    "ack with retention": "completed",
    "release": "scheduled",
    "fail": "failed",
    "hand_back": "ready",
}
each_way = pytest.mark.parametrize("way", SETTLE)


@pytest.fixture
def job(queue: QueueOnServer) -> Delivery:
    (job,) = queue.reserve("job")
    return job


@each_way
def test_a_job_that_is_no_longer_the_callers_is_left_alone(queue: QueueOnServer, job: Delivery, way: str) -> None:
    queue.recover(job)
    (taken_over,) = queue.read(OTHER)
    with queue.unchanged():
        assert SETTLE[way](queue, [job]) == [False]
    assert queue.ack(taken_over)


@each_way
def test_one_call_settles_its_own_jobs_and_no_others(queue: QueueOnServer, way: str) -> None:
    one, two, three, four = queue.reserve("one", "two", "three", "four")
    queue.hand_back(two)
    jobs: list[Job] = [
        one,
        two,
        DeliveryRef("orders", "nobody", four.entry),
        three,
        DeliveryRef("orders", "four", "0-1"),
    ]
    assert SETTLE[way](queue, jobs) == [True, False, False, True, False]
    after = STATES_AFTER[way]
    states = [queue.state_of(id) for id in ("one", "two", "three", "four")]
    assert states == [after, "ready", after, "reserved"]


@each_way
def test_a_job_that_comes_twice_in_a_call_is_settled_once(queue: QueueOnServer, job: Delivery, way: str) -> None:
    assert SETTLE[way](queue, [job, job])[0]
    assert queue.state_of("job") == STATES_AFTER[way]


def test_the_plain_case_of_ack_leaves_what_the_whole_script_leaves(queue: QueueOnServer) -> None:
    def settle(*, alone: bool) -> tuple[list[int], object]:
        queue.server.flushall()
        jobs = queue.reserve("one", "two", "three", "four")
        for role in ("recoveries", "errors", "cancel", "progress"):
            queue.server.hset(queue.key(role), mapping={"two": "7", "four": "8"})
        acked = [Acked("orders", job.id, job.entry) for job in jobs[:3]]
        answers = queue.ack_all(*acked, alone=alone)
        roles = ("jobs", "entries", "recoveries", "errors", "cancel", "progress", "meta")
        assert queue.rows("meta")["acked_total"] == "3"
        return answers, (queue.in_stream(), len(queue.pending()), [set(queue.rows(role)) for role in roles])

    assert settle(alone=True) == settle(alone=False)


def test_ack_frees_a_unique_key_though_nothing_else_is_to_be_done(queue: QueueOnServer) -> None:
    queue.schedule("one", lock="digest")
    (job,) = queue.read()
    assert queue.ack_all(Acked("orders", job.id, job.entry), alone=True) == [True]
    assert (queue.rows("unique"), queue.rows("locks")) == ({}, {})


@each_way
def test_nothing_to_settle_changes_nothing(queue: QueueOnServer, job: Delivery, way: str) -> None:
    with queue.unchanged():
        assert SETTLE[way](queue, []) == []


@pytest.mark.parametrize("way", ["ack", "ack (plain)", "ack with retention", "hand_back"])
def test_a_stop_request_is_kept_only_while_the_job_is_ready_again(
    queue: QueueOnServer, job: Delivery, way: str
) -> None:
    queue.cancel("job", running=True)
    SETTLE[way](queue, [job])
    assert list(queue.rows("cancel")) == (["job"] if way == "hand_back" else [])


@pytest.mark.parametrize("way", ["release", "fail"])
def test_a_job_that_was_asked_to_stop_neither_runs_again_nor_fails(queue: QueueOnServer, way: str) -> None:
    one, two, three = queue.reserve("one", "two", "three")
    queue.cancel("two", running=True)
    stranger = DeliveryRef("orders", "two", "0-1")
    assert SETTLE[way](queue, [one, two, stranger, three]) == [1, 2, 0, 1]
    assert [queue.state_of(id) for id in ("one", "two", "three")] == [STATES_AFTER[way], "reserved", STATES_AFTER[way]]
    with queue.unchanged():
        assert SETTLE[way](queue, [two]) == [2]
    assert queue.ack_stopped(two) == [1]
    assert (queue.state_of("two"), queue.rows("cancel")) == ("absent", {})
    assert queue.rows("meta")["cancelled_total"] == "1"


def test_a_stopped_job_frees_its_unique_key_and_is_fenced_like_others(queue: QueueOnServer) -> None:
    queue.schedule("one", lock="digest")
    (job,) = queue.read()
    assert queue.ack_stopped(job, job) == [1, 1]
    assert (queue.rows("unique"), queue.rows("locks")) == ({}, {})
    assert queue.ack_stopped(job) == [0]
    assert "acked_total" not in queue.rows("meta")


@each_way
def test_a_plain_consumer_settles_with_the_same_scripts(queue: QueueOnServer, way: str) -> None:
    (job,) = queue.reserve("job", consumer=PLAIN)
    assert SETTLE[way](queue, [job]) == [True]
    assert queue.pending() == {}


@each_way
def test_what_was_acknowledged_or_trimmed_is_settled_all_the_same(queue: QueueOnServer, way: str) -> None:
    one, two = queue.reserve("one", "two")
    queue.server.xack(queue.stream, GROUP, one.entry)
    queue.server.xdel(queue.stream, two.entry)
    assert SETTLE[way](queue, [one, two]) == [True, True]
    assert queue.pending() == {}


@pytest.mark.parametrize("way", [way for way in SETTLE if way != "hand_back"])
def test_so_is_what_lost_its_group_or_its_stream(queue: QueueOnServer, way: str) -> None:
    one, two = queue.reserve("one", "two")
    queue.server.xgroup_destroy(queue.stream, GROUP)
    assert SETTLE[way](queue, [one]) == [True]
    queue.server.delete(queue.stream)
    assert SETTLE[way](queue, [two]) == [True]


def test_500_jobs_are_settled_in_one_call(queue: QueueOnServer) -> None:
    jobs = queue.reserve(*(f"job-{number}" for number in range(500)))
    assert SETTLE["ack"](queue, [*jobs]) == [True] * 500
    assert queue.in_stream() == []


def _calls(queue: QueueOnServer, job: Delivery) -> dict[str, Call[Any]]:
    id, entry = job.id, job.entry
    return {
        "ack": delivery.ack(queue.keys, "orders", [Acked("orders", id, entry)]),
        "release": delivery.release(queue.keys, "orders", [Released("orders", id, entry, 0, b"", b"")]),
        "fail": delivery.fail(queue.keys, "orders", [Failed("orders", id, entry, b"", b"")]),
        "hand_back": delivery.hand_back(queue.keys, "orders", [job.ref]),
    }


@pytest.mark.parametrize("script", ["ack", "release", "fail", "hand_back"])
def test_half_a_row_settles_nothing(queue: QueueOnServer, job: Delivery, script: str) -> None:
    call = _calls(queue, job)[script]
    with queue.unchanged(), pytest.raises(BackendError, match="complete rows of"):
        queue.run(msgspec.structs.replace(call, words=call.words[:-1]))


@pytest.mark.parametrize("script", ["ack", "release"])
@pytest.mark.parametrize("wrong", ["soon", "", "nan", "9007199254740991"])
def test_a_time_that_is_none_settles_nothing(queue: QueueOnServer, job: Delivery, script: str, wrong: str) -> None:
    call = _calls(queue, job)[script]
    words = [*call.words]
    words[-3] = wrong
    with queue.unchanged(), pytest.raises(BackendError, match="must be a number of milliseconds"):
        queue.run(msgspec.structs.replace(call, words=tuple(words)))


# --- ack


def test_a_done_job_leaves_nothing(queue: QueueOnServer) -> None:
    queue.put("job", "reserved", lock="digest")
    queue.release(queue.held("job"), 0)
    queue.promote()
    (job,) = queue.read()
    queue.server.hset(queue.key("recoveries"), "job", 1)
    queue.report_progress(("job", job.entry, b'{"done":1'))
    assert queue.ack(job)
    assert queue.state_of("job") == "absent"
    assert set(queue.server.keys()) == {queue.stream, queue.key("meta")}
    assert queue.rows("meta")["acked_total"] == "1"


def test_a_done_job_with_retention_is_kept_with_its_result(queue: QueueOnServer, job: Delivery) -> None:
    queue.ack(job, retention_ms=60_000)
    assert queue.times("completed") == {"job": NOW + 60_000}
    assert queue.rows("results") == {"job": '"result"'}
    assert queue.rows("jobs") == {"job": envelope_of("job").decode()}


def test_a_job_that_is_kept_has_a_result_in_any_case(queue: QueueOnServer, job: Delivery) -> None:
    queue.ack_all(Acked("orders", job.id, job.entry, 1, result=b""))
    assert queue.rows("results") == {"job": "null"}


def test_a_report_is_kept_with_the_failure_before_it(queue: QueueOnServer, job: Delivery) -> None:
    queue.release(job, 0)
    queue.promote()
    (job,) = queue.read()
    queue.ack(job, retention_ms=HOUR, report=b'{"ran_ms":7}')
    assert queue.rows("errors") == {"job": '{"ran_ms":7,"before":{"type":"E","message":"m"}}'}


# --- release and fail


def test_a_released_job_waits_with_its_new_envelope_and_failure(queue: QueueOnServer, job: Delivery) -> None:
    queue.release(job, 5 * SECOND)
    assert queue.times("scheduled") == {"job": NOW + 5 * SECOND}
    assert (queue.rows("jobs"), queue.rows("errors")) == ({"job": "again"}, {"job": FAILURE.decode()})
    assert queue.rows("meta")["released_total"] == "1"


def test_a_released_job_is_due_for_the_mover(queue: QueueOnServer, job: Delivery) -> None:
    queue.release(job, 0)
    assert queue.state_of("job") == "scheduled"
    queue.promote()
    assert queue.read()[0].entry != job.entry


def test_a_failed_job_stays_with_its_envelope_and_failure(queue: QueueOnServer, job: Delivery) -> None:
    queue.fail(job, envelope=b"\x00\xff[]", failure=b"\xfe\x00")
    assert queue.times("failed") == {"job": NOW}
    assert queue.page("failed").jobs[0].raw == b"\x00\xff[]"
    assert queue.rows("errors") == {"job": "\\xfe\x00"}
    assert queue.rows("meta")["failed_total"] == "1"


@pytest.mark.parametrize("way", ["release", "fail"])
def test_no_envelope_and_no_failure_leave_what_is_there(queue: QueueOnServer, job: Delivery, way: str) -> None:
    queue.server.hset(queue.key("errors"), "job", "{}")
    if way == "release":
        queue.release(job, 5, envelope=b"", failure=b"")
    else:
        queue.fail(job, envelope=b"", failure=b"")
    assert (queue.rows("jobs"), queue.rows("errors")) == ({"job": envelope_of("job").decode()}, {"job": "{}"})


@pytest.mark.parametrize("way", ["release", "fail", "hand_back"])
def test_the_workers_that_vanished_stay_counted(queue: QueueOnServer, job: Delivery, way: str) -> None:
    queue.server.hset(queue.key("recoveries"), "job", 3)
    SETTLE[way](queue, [job])
    assert queue.rows("recoveries") == {"job": "3"}


@pytest.mark.parametrize("way", ["release", "fail"])
def test_a_lost_payload_comes_back_with_the_envelope(queue: QueueOnServer, job: Delivery, way: str) -> None:
    queue.server.hdel(queue.key("jobs"), "job")
    SETTLE[way](queue, [job])
    assert list(queue.rows("jobs")) == ["job"]
