"""Events: who listens here, whose listening is a job, and what neither can do to a job."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from typing import Any

import pytest

from delayq import (
    Fail,
    Fate,
    Job,
    JobContext,
    JobDispatched,
    JobEnded,
    JobSkipped,
    JobStarted,
    Retry,
    Skip,
    Snooze,
    WorkerStarting,
    WorkerStopping,
    aannounce,
    announce,
    dispatch,
    dispatch_many,
    job,
    listener,
    queued_listener,
)
from delayq.core.errors import BackendUnavailable, ConfigError, InvalidPayload
from delayq.core.states import State
from delayq.jobs.current import make_manager, using_manager
from delayq.manager import Manager
from delayq.settings import Settings
from tests.support.station import PATIENCE_S, Station
from tests.support.tape import Tape

pytestmark = pytest.mark.usefixtures("manager")


@dataclass(frozen=True)
class OrderPaid:
    order_id: int
    total: int = 0


@dataclass(frozen=True)
class GiftPaid(OrderPaid):
    text: str = ""


def test_a_listener_hears_of_its_kind_and_what_is_derived_from_it(station: Station) -> None:
    heard: list[object] = []
    listener(OrderPaid)(heard.append)
    listener(GiftPaid)(lambda event: heard.append(event.text))
    announce(OrderPaid(order_id=1))
    announce(GiftPaid(order_id=2, text="enjoy"))
    announce("no listener")
    assert heard == [OrderPaid(order_id=1), "enjoy", GiftPaid(order_id=2, text="enjoy")]


def test_a_listener_that_raises_is_logged_and_harms_nobody(station: Station, caplog: pytest.LogCaptureFixture) -> None:
    heard: list[object] = []

    @listener(OrderPaid)
    def broken(event: OrderPaid) -> None:
        raise ValueError("broken listener")

    listener(OrderPaid)(heard.append)
    assert announce(OrderPaid(order_id=1)) == []
    assert heard == [OrderPaid(order_id=1)]
    assert "broken listener" in caplog.text


def test_an_async_listener_is_refused(station: Station) -> None:
    async def late(event: OrderPaid) -> None: ...

    with pytest.raises(ConfigError, match="queued_listener"):
        listener(OrderPaid)(late)


def receipts(station: Station, **options: Any) -> Tape[Any]:
    seen = station.tape()

    @queued_listener(OrderPaid, name="receipt.send", **options)
    def send_receipt(event: OrderPaid, context: JobContext) -> None:
        seen.append((event, context.name, context.tries))

    return seen


def test_a_queued_listener_has_its_own_queue_delay_and_tries(station: Station) -> None:
    seen = receipts(station, queue="mail", delay="1h", tries=7)
    [ref] = announce(OrderPaid(order_id=42))
    assert (ref.queue, ref.state) == ("mail", State.SCHEDULED)
    station.client.run_now(ref.id, queue="mail")
    station.drain(queues=("mail",))
    assert seen == [(OrderPaid(order_id=42), "receipt.send", 7)]


async def test_it_is_announced_from_a_loop_too(station: Station, manager: Manager) -> None:
    receipts(station)
    [ref] = await aannounce(OrderPaid(order_id=42))
    await manager.aclose()
    assert station.job(ref.id).data == {"event": {"order_id": 42, "total": 0}}


def test_an_async_function_may_be_queued(station: Station) -> None:
    seen = station.tape()

    @queued_listener(OrderPaid)
    async def note(event: OrderPaid) -> None:
        seen.append(event.order_id)

    [ref] = announce(OrderPaid(order_id=42))
    assert ref.name == "OrderPaid.note"
    station.drain()
    assert seen == [42]


def test_a_class_listens_with_all_that_a_job_can(station: Station) -> None:
    seen = station.tape()

    @queued_listener(OrderPaid)
    class SendReceipt(Job, name="receipt", tries=1):
        event: OrderPaid

        def prepare_for_dispatch(self) -> bool:
            return self.event.total > 0

        def handle(self) -> None:
            raise ValueError(f"no printer for {self.event.order_id}")

        def failed(self, error: BaseException) -> None:
            seen.append(f"{self.event.order_id}: {error}")

    [vetoed] = announce(OrderPaid(order_id=41))
    [ref] = announce(OrderPaid(order_id=42, total=1))
    station.drain()
    assert vetoed.outcome is Fate.VETOED
    assert (ref.name, station.state(ref.id)) == ("receipt", State.FAILED)
    assert seen == ["42: no printer for 42"]


def test_the_event_decides_whether_and_where_to(station: Station) -> None:
    receipts(
        station,
        queue="mail",
        when=lambda event: event.total > 0,
        dispatch=lambda event: {"queue": "vip", "delay": "1h"} if event.total > 1000 else {},
    )
    assert announce(OrderPaid(order_id=1)) == []
    assert [ref.queue for ref in announce(OrderPaid(order_id=2, total=5))] == ["mail"]
    [vip] = announce(OrderPaid(order_id=3, total=5000))
    assert (vip.queue, vip.state) == ("vip", State.SCHEDULED)


def test_only_the_listener_that_fails_is_tried_again(station: Station) -> None:
    seen = receipts(station)

    @queued_listener(OrderPaid, name="stock", tries=2, backoff="1h")
    def stock(event: OrderPaid) -> None:
        raise ValueError("no stock")

    first, second = announce(OrderPaid(order_id=42))
    station.drain()
    assert len(seen) == 1
    assert (station.state(first.id), station.state(second.id)) == (State.ABSENT, State.SCHEDULED)


def test_the_same_event_announced_again_changes_nothing(station: Station) -> None:
    receipts(station)
    outcomes = [announce(OrderPaid(order_id=42), id="paid-42")[0] for _ in range(2)]
    assert [(ref.id, ref.outcome.value) for ref in outcomes] == [
        ("paid-42.receipt.send", "created"),
        ("paid-42.receipt.send", "kept"),
    ]


def test_what_could_not_be_queued_is_an_error_and_nobody_here_has_heard(station: Station) -> None:
    heard: list[object] = []
    receipts(station)
    listener(OrderPaid)(heard.append)
    away = make_manager(Settings(url="redis://127.0.0.1:1/0"))
    with using_manager(away), pytest.raises(BackendUnavailable):
        announce(OrderPaid(order_id=42))
    away.close()
    assert heard == []


def test_a_derived_event_that_its_listener_cannot_carry_is_refused(station: Station) -> None:
    receipts(station)
    with pytest.raises(InvalidPayload, match="'event'"):
        announce(GiftPaid(order_id=1, text="enjoy"))


def test_listeners_that_cannot_be_are_refused(station: Station) -> None:
    with pytest.raises(ConfigError, match="It needs exactly one"):

        @queued_listener(OrderPaid)
        class Two(Job):
            event: OrderPaid
            other: int

            def handle(self) -> None: ...

    with pytest.raises(ConfigError, match="its options stand in its own line"):

        @queued_listener(OrderPaid, queue="mail")
        class Late(Job):
            event: OrderPaid

            def handle(self) -> None: ...


def test_a_worker_tells_the_applications_listeners(station: Station) -> None:
    heard = station.tape()
    for kind in (JobStarted, JobEnded, WorkerStarting, WorkerStopping):
        listener(kind)(lambda event: heard.append(type(event).__name__))
    job("act")(lambda: None)
    dispatch("act")
    station.drain()
    assert list(heard) == ["WorkerStarting", "JobStarted", "JobEnded", "WorkerStopping"]


@pytest.mark.parametrize("kind", [JobStarted, JobEnded])
def test_a_listener_that_raises_changes_no_outcome(station: Station, kind: type) -> None:
    @listener(kind)
    def broken(event: object) -> None:
        raise ValueError("broken listener")

    job("act", retention="1h")(lambda: 7)
    ref = dispatch("act")
    station.drain()
    assert (station.state(ref.id), station.job(ref.id).result) == (State.COMPLETED, 7)


def test_dispatches_are_heard_of_with_what_became_of_them(station: Station, manager: Manager) -> None:
    heard: list[tuple[str, str, str]] = []
    listener(JobDispatched)(lambda event: heard.append((event.name, event.connection, event.outcome)))

    class Shy(Job):
        loud: bool

        def prepare_for_dispatch(self) -> bool:
            return self.loud

        def handle(self) -> None: ...

    Shy(loud=True).dispatch(id="one")
    Shy(loud=True).dispatch(id="one")
    Shy(loud=True).dispatch(connection="null")
    dispatch_many([Shy(loud=False), Shy(loud=True)])
    assert heard == [
        ("Shy", "default", "created"),
        ("Shy", "default", "kept"),
        ("Shy", "null", "dropped"),
        ("Shy", "", "vetoed"),
        ("Shy", "default", "created"),
    ]


def test_a_skip_is_heard_of(station: Station) -> None:
    heard = station.tape()
    listener(JobSkipped)(heard.append)
    job("act", middleware=[Skip.when(True)])(lambda: None)
    ref = dispatch("act")
    station.drain()
    assert list(heard) == [JobSkipped(ref.id, "act", "orders")]


def test_there_are_no_events_nobody_hears(station: Station) -> None:
    listener(OrderPaid)(lambda event: None)
    assert station.plan().audience == station.listeners
    listener(JobEnded)(lambda event: None)
    assert len(station.plan().audience) == len(station.listeners) + 1


ENDS = [
    (None, "done", False),
    (Snooze("1h"), "snoozed", False),
    (Retry("1h"), "released", True),
    (Fail("no stock"), "failed", True),
    (ValueError("broken"), "failed", True),
]


@pytest.mark.parametrize("here", [False, True])
@pytest.mark.parametrize(("error", "outcome", "caused"), ENDS)
def test_how_an_attempt_ended_is_heard(
    station: Station, error: Exception | None, outcome: str, caused: bool, here: bool
) -> None:
    heard = station.tape()
    listener(JobStarted)(lambda event: heard.append((event.name, event.attempt)))
    listener(JobEnded)(lambda event: heard.append((event.outcome, event.attempt, event.error is not None)))

    @job("act", tries=2 if outcome == "released" else 1)
    def act() -> None:
        if error is not None:
            raise error

    if here:
        with contextlib.suppress(Fail, ValueError):
            act.job().dispatch_sync()
    else:
        act.job().dispatch()
        station.drain()
    assert list(heard) == [("act", 1), (outcome, 1, caused)]


def test_a_timeout_is_heard_of_as_the_cause(station: Station) -> None:
    heard = station.tape()
    listener(JobEnded)(lambda event: heard.append((event.outcome, type(event.error).__name__)))

    @job("slow", tries=1, timeout="100ms")
    def slow() -> None:
        time.sleep(PATIENCE_S)

    slow.job().dispatch()
    station.drain()
    assert list(heard) == [("failed", "JobTimedOut")]
