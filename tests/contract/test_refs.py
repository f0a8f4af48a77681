"""What the answer of a schedule can be asked later: on each backend it works, or is refused in one sentence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from delayq.core.errors import ConfigError, InvalidInput, JobNotFound, JobRunning
from delayq.core.states import Answer, State
from delayq.core.views import JobRef
from tests.contract.rig import Rig, give_up

VERBS: tuple[Callable[[JobRef], Any], ...] = (
    lambda ref: ref.cancel(),
    lambda ref: ref.reschedule(delay="1h"),
    lambda ref: ref.run_now(),
    lambda ref: ref.refresh(),
    lambda ref: ref.wait("1s"),
    lambda ref: ref.result("1s"),
)


@pytest.mark.needs("cancel", "reschedule", "run_now", "inspect", "delay")
def test_an_answer_moves_shows_and_cancels_its_job(rig: Rig) -> None:
    ref = rig.schedule(data=42, delay="1h")
    info = ref.refresh()
    assert info is not None
    assert (info.id, info.state, info.data) == (ref.id, State.SCHEDULED, 42)
    moved = ref.reschedule(delay="2h")
    assert (moved.outcome, moved.queue) == (Answer.RESCHEDULED, rig.queue)
    assert (moved.due_ms or 0) - (ref.due_ms or 0) > 3_000_000
    assert moved.run_now().state is State.READY
    assert ref.cancel() is Answer.CANCELLED
    assert ref.cancel() is Answer.UNKNOWN
    with pytest.raises(JobNotFound):
        ref.run_now()


@pytest.mark.needs("cancel", "reschedule", "run_now", "inspect", "delay")
async def test_an_awaited_answer_does_so_too(rig: Rig) -> None:
    ref = await rig.connection.aschedule(rig.spec(delay="1h"), "keep")  # type: ignore[arg-type]  # a word of OnConflict
    info = await ref.arefresh()
    assert info is not None
    assert info.id == ref.id
    assert (await ref.areschedule(delay="2h")).outcome is Answer.RESCHEDULED
    assert (await ref.arun_now()).state is State.READY
    assert await ref.acancel() is Answer.CANCELLED
    await rig.connection.aclose()


@pytest.mark.needs("cancel", "reschedule")
def test_each_of_many_answers_can_be_asked(rig: Rig) -> None:
    refs = rig.connection.schedule_many([rig.spec(delay="1h"), rig.spec(delay="1h")], "keep")  # type: ignore[arg-type]
    assert [ref.cancel() for ref in refs] == [Answer.CANCELLED, Answer.CANCELLED]


@pytest.mark.needs("wait")
def test_a_running_job_has_not_ended(rig: Rig) -> None:
    ref = rig.schedule()
    consumer = rig.consumer()
    delivery = rig.one(consumer)
    info = ref.refresh()
    assert info is not None
    assert info.state is State.RESERVED
    with pytest.raises(TimeoutError, match="has not ended within 30ms"):
        ref.wait("30ms")
    assert ref.cancel() is Answer.RUNNING
    with pytest.raises(JobRunning):
        ref.reschedule(delay="1h")
    assert rig.settle(consumer, delivery)
    assert ref.wait("20s") is None


@pytest.mark.needs("wait")
async def test_the_end_of_a_failed_job_is_its_failure(rig: Rig) -> None:
    ref = rig.schedule()
    consumer = rig.consumer()
    delivery = rig.one(consumer)
    assert rig.settle(consumer, delivery, give_up(delivery, ValueError("no such order")))
    for info in (ref.wait("20s"), await ref.await_("20s")):
        assert info is not None
        assert info.failure is not None
        assert (info.state, info.failure.message) == (State.FAILED, "no such order")
    await rig.connection.aclose()


@pytest.mark.needs("serves")
@pytest.mark.lacks("cancel")
def test_what_cannot_be_changed_is_refused(rig: Rig) -> None:
    ref = rig.schedule()
    with pytest.raises(InvalidInput, match=f"The connection '{rig.connection.name}' cannot cancel a job"):
        ref.cancel()
    with pytest.raises(InvalidInput, match="cannot reschedule a job"):
        ref.reschedule(delay="1h")
    with pytest.raises(InvalidInput, match="cannot run a waiting job now"):
        ref.run_now()


@pytest.mark.needs("serves", "cancel")
@pytest.mark.lacks("progress")
def test_a_running_job_cannot_be_asked_to_stop(rig: Rig) -> None:
    with pytest.raises(InvalidInput, match="cannot ask a running job to stop"):
        rig.schedule().cancel(running=True)


@pytest.mark.needs("serves")
@pytest.mark.lacks("inspect")
async def test_what_cannot_be_shown_is_refused(rig: Rig) -> None:
    ref = rig.schedule()
    with pytest.raises(InvalidInput, match="cannot show a job"):
        ref.refresh()
    with pytest.raises(InvalidInput, match="cannot show a job"):
        await ref.arefresh()


@pytest.mark.needs("serves", "inspect")
@pytest.mark.lacks("wait")
def test_a_job_that_is_not_found_may_run_and_that_is_said(rig: Rig) -> None:
    ref = rig.schedule()
    waiting = ref.refresh()
    assert waiting is not None
    assert waiting.state is State.READY
    delivery = rig.one(consumer := rig.consumer())
    with pytest.raises(InvalidInput, match="cannot tell a running job from one that is done"):
        ref.refresh()
    assert rig.settle(consumer, delivery)


@pytest.mark.needs("serves")
@pytest.mark.lacks("wait")
async def test_an_end_that_cannot_be_seen_is_not_waited_for(rig: Rig) -> None:
    ref = rig.schedule()
    with pytest.raises(InvalidInput, match="cannot tell when a job has ended"):
        ref.wait("1s")
    with pytest.raises(InvalidInput, match="cannot tell when a job has ended"):
        await ref.await_("1s")


@pytest.mark.needs("serves")
@pytest.mark.lacks("retention")
async def test_a_result_that_is_not_kept_is_refused(rig: Rig) -> None:
    ref = rig.schedule()
    with pytest.raises(InvalidInput, match="cannot keep the result of a job"):
        ref.result("1s")
    with pytest.raises(InvalidInput, match="cannot keep the result of a job"):
        await ref.aresult("1s")


@pytest.mark.lacks("serves")
@pytest.mark.parametrize("verb", VERBS)
def test_a_job_that_nothing_keeps_cannot_be_asked_about(rig: Rig, verb: Callable[[JobRef], Any]) -> None:
    ref = rig.schedule("contract.named", None)
    with pytest.raises(ConfigError, match=f"'{ref.id}'.*{ref.outcome}.*no backend keeps the job"):
        verb(ref)
