"""Queued listeners: the event is the payload of a job."""

import asyncio
import functools
import warnings
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from delayq import (
    DelayQ,
    InvalidInput,
    JobContext,
    JobDispatched,
    JobEnded,
    JobStarted,
    Manager,
    QueuePaused,
    WorkerLooping,
    emit,
    queued_listener,
    set_manager,
)
from delayq.core.listeners import listeners
from delayq.testing import arun_job, run_job

pytestmark = pytest.mark.usefixtures("no_listeners")


@dataclass
class Placed:
    order_id: int
    lines: list[str]


class Shipped(msgspec.Struct):
    order_id: int


class Plain:
    pass


@dataclass
class Broken:
    error: BaseException


def test_the_event_is_the_payload_and_the_options_apply(sent: DelayQ) -> None:
    seen: list[Any] = []

    @queued_listener(Placed, name="mail.placed", queue="mail", delay="15m", tries=3)
    def send_mail(event: Placed, context: JobContext) -> None:
        seen.append((event, context.name))

    assert emit(Placed(42, ["tea"]))
    (job,) = sent.iter_jobs("scheduled", queue="mail")
    assert (job.name, job.data) == ("mail.placed", {"event": {"order_id": 42, "lines": ["tea"]}})
    run_job(job.name, job.data)
    assert seen == [(Placed(42, ["tea"]), "mail.placed")]


def test_an_async_function_may_listen(sent: DelayQ) -> None:
    seen: list[Shipped] = []

    @queued_listener(Shipped, name="mail.shipped", queue="mail", delay="1h")
    async def send_mail(event: Shipped) -> None:
        seen.append(event)

    emit(Shipped(1))
    (job,) = sent.iter_jobs("scheduled", queue="mail")
    asyncio.run(arun_job(job.name, job.data))
    asyncio.run(send_mail(Shipped(2)))
    assert seen == [Shipped(1), Shipped(2)]


def on_pause(event: QueuePaused) -> None:
    """Hear of a pause."""


def test_the_name_comes_from_the_module_and_the_function(sent: DelayQ) -> None:
    queued_listener(QueuePaused, delay="1h")(on_pause)
    emit(QueuePaused("orders"))
    (job,) = sent.iter_jobs("scheduled")
    assert (job.name, job.data) == ("listener.tests.jobs.test_queued_listener.on_pause", {"event": {"queue": "orders"}})


def test_a_second_declaration_replaces_the_first() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(2):
            queued_listener(QueuePaused)(on_pause)
    assert len(listeners[QueuePaused]) == 1


def test_a_job_that_cannot_be_stored_makes_emit_false(caplog: pytest.LogCaptureFixture) -> None:
    queued_listener(QueuePaused)(on_pause)
    set_manager(Manager())
    assert not emit(QueuePaused("orders"))
    assert caplog.messages == ["the listener on_pause of QueuePaused failed"]
    set_manager(None)


@pytest.mark.parametrize("kind", [JobDispatched, JobStarted, JobEnded, WorkerLooping])
def test_an_event_that_its_own_job_emits_is_refused(kind: type) -> None:
    with pytest.raises(InvalidInput, match=f"kind is {kind.__name__}, which the jobs of the listener would emit again"):
        queued_listener(kind)


def no_annotation(event) -> None:  # type: ignore[no-untyped-def]
    pass


def two_events(event: Placed, other: Placed) -> None:
    pass


def no_event(context: JobContext) -> None:
    pass


@pytest.mark.parametrize("function", [no_annotation, two_events, no_event, functools.partial(two_events)])
def test_a_function_without_one_parameter_for_the_event_is_refused(function: Any) -> None:
    with pytest.raises(InvalidInput, match="must have one parameter with the annotation Placed") as raised:
        queued_listener(Placed, name="mail.odd")(function)
    assert raised.value.field == "event"
    assert Placed not in listeners


@pytest.mark.parametrize("kind", [Plain, Broken])
def test_an_event_that_json_cannot_carry_is_refused(kind: type) -> None:
    def hear(event: Any) -> None:
        pass

    hear.__annotations__["event"] = kind
    with pytest.raises(InvalidInput, match=r"The field 'event' of the job 'mail\.odd' cannot be sent as JSON"):
        queued_listener(kind, name="mail.odd")(hear)


def test_a_function_without_a_name_of_its_own_needs_one() -> None:
    def hear(event: Placed) -> None:
        pass

    with pytest.raises(InvalidInput, match=r"has no name that other programs know\. Declare it at the top level"):
        queued_listener(Placed)(hear)
