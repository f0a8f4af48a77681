"""ack.lua, release.lua, fail.lua, hand_back.lua, cancel.lua: what becomes of a delivered job."""

from collections.abc import Callable

import pytest

from delayq.backends.protocol import Delivery
from tests.support.queue import FAILURE, NOW, QueueOnServer

Settle = Callable[[QueueOnServer, Delivery], bool]

EVERY_SETTLE: list[Settle] = [
    lambda queue, job: queue.ack(job),
    lambda queue, job: queue.release(job, 1000),
    lambda queue, job: queue.fail(job),
    lambda queue, job: queue.hand_back(job),
]


@pytest.fixture
def job(queue: QueueOnServer) -> Delivery:
    queue.schedule("job")
    (delivery,) = queue.read()
    return delivery


@pytest.mark.parametrize("settle", EVERY_SETTLE)
def test_a_job_that_is_no_longer_the_callers_is_left_alone(queue: QueueOnServer, job: Delivery, settle: Settle) -> None:
    queue.recover(job.held)
    (taken_over,) = queue.read("dq:b:2:y")
    assert not settle(queue, job)
    assert queue.ack(taken_over)


def test_a_done_job_is_forgotten(queue: QueueOnServer, job: Delivery) -> None:
    assert queue.ack(job)
    assert queue.place_of("job") == "nowhere"
    assert not queue.ack(job)


def test_a_done_job_with_retention_is_kept_with_its_result(queue: QueueOnServer, job: Delivery) -> None:
    queue.ack(job, retention_ms=60_000)
    assert queue.server.zscore(queue.key("completed"), "job") == NOW + 60_000
    assert queue.server.hget(queue.key("results"), "job") == '"result"'


def test_a_released_job_waits_with_its_new_envelope(queue: QueueOnServer, job: Delivery) -> None:
    queue.release(job, 5000)
    assert queue.server.zscore(queue.key("scheduled"), "job") == NOW + 5000
    assert queue.server.hget(queue.key("jobs"), "job") == "again"


def test_a_failed_job_stays_with_its_failure(queue: QueueOnServer, job: Delivery) -> None:
    queue.fail(job)
    assert queue.place_of("job") == "failed"
    assert queue.server.hget(queue.key("errors"), "job") == FAILURE.decode()


def test_a_job_handed_back_is_ready_under_a_new_entry(queue: QueueOnServer, job: Delivery) -> None:
    queue.hand_back(job)
    (again,) = queue.read("dq:b:2:y")
    assert again.entry != job.entry
    assert again.recoveries == 0


def test_only_an_undelivered_job_can_be_cancelled(queue: QueueOnServer, job: Delivery) -> None:
    queue.schedule("waiting", "+1000")
    queue.schedule("ready")
    assert queue.cancel("waiting") == "cancelled"
    assert queue.cancel("ready") == "cancelled"
    assert queue.cancel("job") == "running"
    assert queue.cancel("ready", token="another") == "unknown"


def test_a_second_sending_of_a_cancel_gets_the_first_answer(queue: QueueOnServer) -> None:
    queue.schedule("job", "+1000")
    assert [queue.cancel("job", token="t") for _ in range(2)] == ["cancelled", "cancelled"]
