"""What an application hears of its workers and of what people do to queues and jobs."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from delayq import (
    AsyncDelayQ,
    DelayQ,
    JobRetryRequested,
    QueueBusy,
    QueuePaused,
    QueueResumed,
    WorkerIdle,
    WorkerInterrupted,
    WorkerPausing,
    WorkerQueuePaused,
    WorkerQueueResumed,
    WorkerResuming,
    WorkerStarting,
    dispatch,
    job,
    listener,
)
from delayq.core.errors import InvalidInput
from delayq.core.states import State
from tests.support.station import PATIENCE_S, QUEUE, Station
from tests.support.tape import Tape
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("manager")


def hears(station: Station, *kinds: type, show: Callable[[Any], object] | None = None) -> Tape[Any]:
    """What the application's listeners of these kinds are told, in whichever process."""
    heard = station.tape()
    for kind in kinds:
        listener(kind)(lambda event: heard.append(type(event).__name__ if show is None else show(event)))
    return heard


def until_heard(heard: Tape[Any], *expected: object) -> None:
    wait_until(
        lambda: list(heard) == list(expected), timeout=PATIENCE_S, what=f"{expected} is heard, not {list(heard)}"
    )


def test_a_worker_without_work_says_so_once(station: Station) -> None:
    heard = hears(station, WorkerIdle, show=lambda event: (event.queues, event.jobs))
    job("act")(lambda: None)
    with station.working():
        until_heard(heard, ((QUEUE,), 0))
        dispatch("act")
        until_heard(heard, ((QUEUE,), 0), ((QUEUE,), 1))


def test_signals_are_heard_of(station: Station) -> None:
    heard = hears(station, WorkerPausing, WorkerResuming)
    ended = hears(station, WorkerInterrupted, show=lambda event: event.signal)
    pids = hears(station, WorkerStarting, show=lambda event: os.getpid())  # it hears signals from then on
    with station.working() as running:
        wait_until(lambda: len(pids) == 1, timeout=PATIENCE_S, what="the worker has started")
        os.kill(pids[0], signal.SIGUSR2)
        until_heard(heard, "WorkerPausing")
        os.kill(pids[0], signal.SIGCONT)
        until_heard(heard, "WorkerPausing", "WorkerResuming")
        os.kill(pids[0], signal.SIGTERM)
        running.join()
    assert ended == ["SIGTERM"]


def test_who_ends_by_itself_was_not_interrupted(station: Station) -> None:
    heard = hears(station, WorkerInterrupted)
    station.drain()
    assert heard == []


def test_a_worker_notices_pauses_of_one_queue_and_of_all(station: Station) -> None:
    heard = hears(station, WorkerQueuePaused, WorkerQueueResumed, show=lambda event: (type(event), event.queue))
    station.client.pause("other")
    with station.working(queues=(QUEUE, "other")):
        until_heard(heard, paused := (WorkerQueuePaused, "other"))
        station.client.pause_all()
        until_heard(heard, paused, both := (WorkerQueuePaused, QUEUE))
        station.client.resume_all()
        until_heard(heard, paused, both, back := (WorkerQueueResumed, QUEUE))
        station.client.resume("other")
        until_heard(heard, paused, both, back, (WorkerQueueResumed, "other"))


def test_who_pauses_tells_the_program_it_is_done_in(station: Station) -> None:
    heard: list[object] = []
    for kind in (QueuePaused, QueueResumed):
        listener(kind)(heard.append)
    with DelayQ(station.url) as client:
        until_ms = client.pause("orders", length="1h")
        client.resume("orders")
        client.pause_all()
        client.resume_all()
        client.start_maintenance()
        client.end_maintenance()
    assert heard == [QueuePaused("orders", until_ms), QueueResumed("orders"), QueuePaused("", 0), QueueResumed("")]


async def test_an_async_client_tells_the_same(station: Station) -> None:
    heard: list[object] = []
    for kind in (QueuePaused, QueueResumed):
        listener(kind)(heard.append)
    async with AsyncDelayQ(station.url) as client:
        await client.pause("orders")
        await client.resume("orders")
    assert heard == [QueuePaused("orders", 0), QueueResumed("orders")]


def test_a_retry_is_heard_of_when_it_was_granted(station: Station) -> None:
    heard: list[object] = []
    listener(JobRetryRequested)(heard.append)
    job("act", tries=1)(_fails)
    for job_id in ("one", "two"):
        dispatch("act", id=job_id)
    station.drain()
    with DelayQ(station.url, queue=QUEUE) as client:
        client.retry("one")
        assert [answer.id for answer in client.retry_failed()] == ["two"]
        assert list(client.retry_failed()) == []
    assert heard == [JobRetryRequested(job_id, "act", QUEUE) for job_id in ("one", "two")]
    assert station.state("one") is State.SCHEDULED


def test_a_queue_with_too_much_to_do_is_told_of(station: Station) -> None:
    heard: list[object] = []
    listener(QueueBusy)(heard.append)
    for _ in range(3):
        dispatch("act")
    dispatch("act", delay="1h")
    dispatch("act", queue="quiet")
    with DelayQ(station.url) as client:
        assert [one.queue for one in client.busy(above=3)] == [QUEUE]
        assert client.busy(above=4) == []
        with pytest.raises(InvalidInput, match="above is 0"):
            client.busy(above=0)
    assert heard == [QueueBusy(QUEUE, 3, 3)]


def _fails() -> None:
    raise ValueError("no")
