"""What people ask of a connection, and do about the jobs that wait there or have failed."""

from __future__ import annotations

import pytest

from delayq.core.errors import InvalidInput, JobNotFound, JobRunning
from delayq.core.states import Answer, State
from tests.contract.rig import Rig, data_of, envelope_of, give_up

pytestmark = pytest.mark.needs("serves")


@pytest.mark.needs("inspect", "delay")
def test_what_waits_is_listed(rig: Rig) -> None:
    later = rig.schedule(data="later", delay="1h")
    ready = rig.schedule(data="ready")
    desk = rig.desk
    [scheduled] = desk.iter_jobs(State.SCHEDULED, queue=rig.queue)
    [now] = desk.iter_jobs(State.READY, queue=rig.queue)
    assert (scheduled.id, scheduled.data, now.id, now.data) == (later.id, "later", ready.id, "ready")
    shown = desk.get(later.id, queue=rig.queue)
    assert shown is not None
    assert later.due_ms is not None
    assert abs((shown.due_ms or 0) - later.due_ms) < 60_000  # by the server's clock, and by an estimate of it
    assert desk.get("0" * 26, queue=rig.queue) is None


@pytest.mark.needs("counts", "delay")
def test_queues_tell_how_long_they_are(rig: Rig) -> None:
    for options in ({}, {}, {"delay": "15m"}):
        rig.schedule(**options)
    [stats] = rig.desk.stats(rig.queue)
    assert (stats.queue, stats.ready, stats.scheduled) == (rig.queue, 2, 1)
    assert rig.queue in rig.desk.queues()


@pytest.mark.lacks("counts")
def test_a_queue_that_cannot_be_counted_says_so(rig: Rig) -> None:
    with pytest.raises(InvalidInput, match="cannot tell how long its queues are"):
        rig.desk.stats(rig.queue)


@pytest.mark.lacks("inspect")
def test_jobs_that_cannot_be_listed_are_said_so(rig: Rig) -> None:
    with pytest.raises(InvalidInput, match="cannot list its jobs"):
        list(rig.desk.iter_jobs(State.READY, queue=rig.queue))
    with pytest.raises(InvalidInput, match="cannot show a job"):
        rig.desk.get("0" * 26, queue=rig.queue)


@pytest.mark.needs("cancel", "delay")
def test_a_waiting_job_is_cancelled_and_a_running_one_is_not(rig: Rig) -> None:
    waiting, running = rig.schedule(delay="1h"), rig.schedule()
    consumer = rig.consumer()
    assert rig.one(consumer).id == running.id
    assert rig.desk.cancel(waiting.id, queue=rig.queue) is Answer.CANCELLED
    assert rig.desk.cancel(waiting.id, queue=rig.queue) is Answer.UNKNOWN
    assert rig.desk.cancel(running.id, queue=rig.queue) is Answer.RUNNING


@pytest.mark.lacks("cancel")
def test_what_cannot_be_cancelled_says_so(rig: Rig) -> None:
    ref = rig.schedule()
    with pytest.raises(InvalidInput, match="cannot cancel a job"):
        rig.desk.cancel(ref.id, queue=rig.queue)


@pytest.mark.needs("reschedule", "run_now", "delay")
def test_a_waiting_job_gets_another_time(rig: Rig) -> None:
    ref = rig.schedule(delay="1h")
    moved = rig.desk.reschedule(ref.id, queue=rig.queue, delay="2h")
    assert (moved.outcome, moved.state) == (Answer.RESCHEDULED, State.SCHEDULED)
    assert (moved.due_ms or 0) - (ref.due_ms or 0) > 3_000_000
    consumer = rig.consumer()
    assert rig.nothing(consumer)
    assert rig.desk.run_now(ref.id, queue=rig.queue).outcome is Answer.READY
    assert rig.one(consumer).id == ref.id
    with pytest.raises(JobRunning):
        rig.desk.run_now(ref.id, queue=rig.queue)
    with pytest.raises(JobNotFound):
        rig.desk.reschedule("0" * 26, queue=rig.queue, delay="1h")


@pytest.mark.lacks("reschedule")
def test_what_cannot_be_rescheduled_says_so(rig: Rig) -> None:
    ref = rig.schedule()
    with pytest.raises(InvalidInput, match="cannot reschedule a job"):
        rig.desk.reschedule(ref.id, queue=rig.queue, delay="1h")


@pytest.mark.needs("clear")
def test_a_queue_is_cleared_of_what_waits(rig: Rig) -> None:
    for _ in range(3):
        rig.schedule()
    assert rig.desk.clear(rig.queue) == 3
    assert rig.nothing(rig.consumer())


@pytest.mark.lacks("clear")
def test_a_queue_that_cannot_be_cleared_says_so(rig: Rig) -> None:
    ref = rig.schedule()
    with pytest.raises(InvalidInput, match="cannot clear a queue"):
        rig.desk.clear(rig.queue)
    assert rig.one(rig.consumer()).id == ref.id


def test_a_failed_job_is_listed_and_tried_again_from_the_start(rig: Rig) -> None:
    ref = rig.schedule("contract.bad", {"order": 42})
    consumer = rig.consumer()
    first = rig.one(consumer)
    assert rig.settle(consumer, first, give_up(first, ValueError("no such order")))
    desk = rig.failed
    [info] = desk.iter_failed(rig.queue)
    assert (info.id, info.name, info.state) == (ref.id, "contract.bad", State.FAILED)
    again = rig.retry(ref.id)
    assert (again.error, again.ref is not None) == (None, True)
    assert list(desk.iter_failed(rig.queue)) == []
    second = rig.one(consumer)
    assert (second.id, data_of(second), envelope_of(second).attempts) == (ref.id, {"order": 42}, 0)
    assert rig.retry(ref.id).ref is None


def test_failed_jobs_are_forgotten_and_pruned(rig: Rig) -> None:
    refs = [rig.schedule(data=n) for n in range(2)]
    consumer = rig.consumer()
    for _ in refs:
        delivery = rig.one(consumer)
        assert rig.settle(consumer, delivery, give_up(delivery, ValueError("no")))
    assert rig.failed.forget([refs[0].id, "0" * 26], queue=rig.queue) == [Answer.FORGOTTEN, Answer.UNKNOWN]
    assert rig.failed.prune_failed(rig.queue, older="1h") == 0
    assert rig.failed.prune_failed(rig.queue, older="0s") == 1
    assert list(rig.failed.iter_failed(rig.queue)) == []


@pytest.mark.needs("ids", "cancel", "reschedule", "inspect", "delay")
def test_a_job_from_before_a_forward_is_the_same_job_after_it(rig: Rig) -> None:
    for job_id in ("before", "both"):
        rig.schedule(id=job_id, delay="1h")
    new = rig.new_queue()
    rig.schedule(id="both", delay="1h", queue=new)
    rig.manager.forward(rig.queue, new)
    again = rig.schedule(id="before", delay="1h")
    assert (again.queue, again.outcome) == (rig.queue, Answer.KEPT)
    assert rig.schedule(id="after", delay="1h").queue == new
    shown = rig.desk.get("before", queue=rig.queue)
    assert shown is not None
    assert shown.queue == rig.queue
    assert rig.desk.reschedule("before", queue=rig.queue, delay="2h").queue == rig.queue
    for job_id in ("before", "both", "after"):
        assert rig.desk.cancel(job_id, queue=rig.queue) is Answer.CANCELLED
    for queue in (rig.queue, new):
        assert list(rig.desk.iter_jobs(State.SCHEDULED, queue=queue)) == []
