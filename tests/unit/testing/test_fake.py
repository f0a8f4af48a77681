"""`delayq_fake`: what is pushed is written down, answered as a queue would, and asked for afterwards."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from delayq import (
    ConfigError,
    Conflict,
    Fate,
    InvalidInput,
    Job,
    JobDispatched,
    Manager,
    State,
    adispatch,
    adispatch_many,
    announce,
    dispatch,
    dispatch_many,
    job,
    listener,
    queued_listener,
)
from delayq.core.errors import InvalidPayload
from delayq.core.states import Answer
from delayq.jobs.dispatch import Sendable, named
from delayq.testing import Fake, faking


@pytest.fixture
def close(manager: Manager) -> type[Any]:
    class CloseOrder(Job, name="order.close", queue="orders", delay="15m"):
        order_id: int
        note: str = ""

        def handle(self) -> None:
            raise AssertionError("a fake runs nothing")

    return CloseOrder


def refused(check: Callable[[], object]) -> str:
    with pytest.raises(AssertionError) as raised:
        check()
    return str(raised.value)


def test_nothing_pushed(delayq_fake: Fake, close: Any) -> None:
    delayq_fake.assert_nothing_pushed()
    delayq_fake.assert_not_pushed(close)
    assert refused(lambda: delayq_fake.assert_pushed(close)) == "No order.close was pushed. Pushed: nothing"
    close(order_id=42).dispatch()
    said = refused(delayq_fake.assert_nothing_pushed)
    assert said.splitlines() == [
        "1 job was pushed, and 0 should be. Pushed:",
        '  order.close to orders over null, in 15m: {"order_id":42,"note":""}',
    ]


def test_pushed_by_class_is_asked_about_the_job_as_it_travelled(delayq_fake: Fake, close: Any) -> None:
    close(order_id=42).dispatch()
    close(order_id=43).dispatch()
    delayq_fake.assert_pushed(close)
    delayq_fake.assert_pushed(close, lambda job: isinstance(job, close) and job.order_id == 42)
    delayq_fake.assert_not_pushed(close, lambda job: job.order_id == 44)
    said = refused(lambda: delayq_fake.assert_pushed(close, lambda job: job.order_id == 44))
    assert said.startswith("No order.close that the predicate accepts was pushed. Pushed:\n")
    assert '{"order_id":43,' in said
    said = refused(lambda: delayq_fake.assert_not_pushed(close, lambda job: job.order_id == 42))
    assert said.startswith("1 of order.close that the predicate accepts was pushed, and none should be.")


def test_pushed_by_a_job_that_equals(delayq_fake: Fake, close: Any) -> None:
    close(order_id=42).dispatch()
    delayq_fake.assert_pushed(close(order_id=42))
    delayq_fake.assert_not_pushed(close(order_id=42, note="else"))


def test_pushed_by_name_pattern_or_function(delayq_fake: Fake) -> None:
    @job("order.bill", queue="bills")
    def bill(order_id: int) -> None: ...

    bill.job(order_id=7).tags("eu").dispatch()
    dispatch("report.build", {"year": 2026}, headers={"trace": "t1"})
    delayq_fake.assert_pushed("order.bill", lambda pushed: pushed.data == {"order_id": 7})
    delayq_fake.assert_pushed(bill, lambda pushed: pushed.tags == ("eu",))
    delayq_fake.assert_pushed("report.*", lambda pushed: pushed.headers["trace"] == "t1")
    delayq_fake.assert_not_pushed("order.close")


def test_what_names_no_job_is_refused(delayq_fake: Fake) -> None:
    class Base(Job):
        order_id: int

    for what in (Base, Base(order_id=1), 42, int):
        with pytest.raises(TypeError, match="names no job"):
            delayq_fake.assert_not_pushed(what)  # type: ignore[arg-type]  # some of them are wrong on purpose


def test_pushed_on(delayq_fake: Fake, close: Any, manager: Manager) -> None:
    manager.route("report.*", queue="reports")
    close(order_id=42).on_queue("vip").dispatch()
    dispatch("report.build")
    delayq_fake.assert_pushed_on("vip", close)
    delayq_fake.assert_pushed_on("reports", "report.build")
    said = refused(lambda: delayq_fake.assert_pushed_on("orders", close))
    assert said.startswith("No order.close was pushed to 'orders'. Pushed:\n  order.close to vip over null, in 15m")


def test_pushed_with_delay(delayq_fake: Fake, close: Any) -> None:
    close(order_id=42).dispatch()
    close(order_id=43).delay("1h").dispatch()
    dispatch("at", at="2030-01-01T12:00:00Z")
    delayq_fake.assert_pushed_with_delay(close, "15m")
    delayq_fake.assert_pushed_with_delay(close, timedelta(hours=1), lambda job: job.order_id == 43)
    delayq_fake.assert_pushed_with_delay("at", "2030-01-01T13:00:00+01:00")
    said = refused(lambda: delayq_fake.assert_pushed_with_delay(close, "1h", lambda job: job.order_id == 42))
    assert "was pushed with a delay of 1h. Pushed:" in said
    said = refused(lambda: delayq_fake.assert_pushed_with_delay("at", "2030-01-01T12:00:01Z"))
    assert "was pushed for 2030-01-01T12:00:01.000Z. Pushed:" in said


def test_pushed_times_and_count(delayq_fake: Fake, close: Any) -> None:
    dispatch_many([close(order_id=n) for n in range(3)])
    delayq_fake.assert_pushed_times(close, 3)
    delayq_fake.assert_pushed_times(close, 1, lambda job: job.order_id == 2)
    delayq_fake.assert_count(3)
    said = refused(lambda: delayq_fake.assert_pushed_times(close, 2))
    assert said.startswith("3 of order.close were pushed, and 2 should be.")
    delayq_fake.clear()
    delayq_fake.assert_nothing_pushed()


def test_it_answers_as_a_queue_would(delayq_fake: Fake, close: Any) -> None:
    ref = close(order_id=42).dispatch(id="order-42")
    assert (ref.id, ref.queue, ref.state, ref.outcome) == ("order-42", "orders", State.SCHEDULED, Answer.CREATED)
    assert ref.due_ms is not None
    assert dispatch("now").state is State.READY
    assert close(order_id=99).dispatch(id="order-42").outcome is Answer.KEPT
    delayq_fake.assert_pushed_times(close, 1, lambda job: job.order_id == 42)
    assert close(order_id=43).dispatch(id="order-42", delay="1h", on_conflict="postpone").outcome is Answer.POSTPONED
    delayq_fake.assert_pushed_with_delay(close, "1h", lambda job: job.order_id == 42)
    assert close(order_id=44).dispatch(id="order-42", on_conflict="replace").outcome is Answer.REPLACED
    delayq_fake.assert_pushed_times(close, 1, lambda job: job.order_id == 44)
    with pytest.raises(Conflict):
        close(order_id=45).dispatch(id="order-42", on_conflict="error")
    delayq_fake.assert_count(2)


def test_a_unique_key_is_taken_until_it_is_cleared(delayq_fake: Fake, close: Any) -> None:
    first = close(order_id=1).dispatch(unique="o:1")
    second = close(order_id=1).dispatch(unique="o:1")
    assert (second.outcome, second.id) == (Answer.KEPT, first.id)
    assert close(order_id=1).on_queue("other").dispatch(unique="o:1").outcome is Answer.CREATED
    with pytest.raises(Conflict, match=first.id):
        close(order_id=1).dispatch(unique="o:1", on_conflict="error")
    close(order_id=1).dispatch(id=first.id, unique="o:2", on_conflict="replace")
    assert close(order_id=3).dispatch(unique="o:1").outcome is Answer.CREATED
    delayq_fake.clear()
    assert close(order_id=1).dispatch(unique="o:2").outcome is Answer.CREATED


def test_what_is_wrong_is_refused_as_always(delayq_fake: Fake, close: Any) -> None:
    with pytest.raises(InvalidInput):
        close(order_id=1).dispatch(delay="15 minutes")
    with pytest.raises(InvalidPayload):
        close(order_id=object()).dispatch()
    with pytest.raises(InvalidInput):
        dispatch_many([close(order_id=1), close(order_id=2).on_queue("no good")])
    delayq_fake.assert_nothing_pushed()


def test_a_partial_fake_takes_some_and_sends_the_rest(delayq_fake: Fake, close: Any) -> None:
    delayq_fake.only(close, "report.*")
    close(order_id=1).dispatch()
    dispatch("report.build")
    assert dispatch("other").outcome is Fate.DROPPED
    delayq_fake.all_but("report.*")
    dispatch("other")
    assert dispatch("report.build").outcome is Fate.DROPPED
    delayq_fake.assert_count(3)


def test_many_at_once_are_divided(delayq_fake: Fake, close: Any, manager: Manager) -> None:
    delayq_fake.only(close)
    mixed: list[Sendable] = [close(order_id=1), close(order_id=2).on_connection("default"), named("other")]
    refs = dispatch_many([*mixed, close(order_id=3)])
    assert [str(ref.outcome) for ref in refs] == ["created", "created", "dropped", "created"]
    assert [pushed.connection for pushed in delayq_fake.pushed()] == ["null", "null", "default"]
    with pytest.raises(InvalidInput):
        dispatch_many([close(order_id=1), named("other").on_queue("no good")])
    delayq_fake.assert_count(3)


async def test_awaited_verbs_are_seen_too(delayq_fake: Fake, close: Any, manager: Manager) -> None:
    delayq_fake.all_but("other")
    await close(order_id=1).adispatch()
    await adispatch("report.build")
    await adispatch_many([close(order_id=2), named("other")])
    await manager.connection().apush_raw(_raw("r1"))
    delayq_fake.assert_count(4)
    assert (await adispatch("other", connection="null")).outcome is Fate.DROPPED
    assert (await manager.connection("null").apush_raw(_raw("r2", name="other"))).outcome is Fate.DROPPED


def test_an_envelope_is_pushed_as_it_is(delayq_fake: Fake, manager: Manager) -> None:
    manager.connection().push_raw(_raw("r1"), delay="5m")
    [pushed] = delayq_fake.pushed("raw")
    assert (pushed.raw, pushed.id, pushed.delay_ms) == (_raw("r1"), "r1", 300_000)
    delayq_fake.all_but("raw")
    assert manager.connection().push_raw(_raw("r2")).outcome is Fate.DROPPED


def _raw(job_id: str, name: str = "raw") -> bytes:
    text = f'{{"v":1,"id":"{job_id}","name":"{name}","queue":"x","data":null,"attempts":0,"created_ms":1}}'
    return text.encode()


def test_a_block_of_its_own_and_what_comes_after_it(close: Any, manager: Manager) -> None:
    with faking(but=("report.*",)) as outer:
        close(order_id=1).dispatch()
        with faking(only=(close,)) as inner:
            close(order_id=2).dispatch()
            dispatch("other")
        inner.assert_count(1)
        outer.assert_pushed("other")
        outer.assert_count(2)
    assert close(order_id=3).dispatch().outcome is Fate.DROPPED


def test_connections_nobody_knows_are_refused_as_always(delayq_fake: Fake, close: Any) -> None:
    with pytest.raises(ConfigError, match="no connection 'nowhere'"):
        close(order_id=1).on_connection("nowhere").dispatch()


def test_jobs_of_queued_listeners_are_pushed(delayq_fake: Fake, manager: Manager) -> None:
    heard: list[str] = []
    listener(JobDispatched)(lambda event: heard.append(event.name))

    @queued_listener(timedelta, name="told", queue="mail")
    def tell(event: timedelta) -> None:
        raise AssertionError("a fake runs nothing")

    announce(timedelta(minutes=5))
    delayq_fake.assert_pushed_on("mail", "told")
    assert heard == ["told"]
