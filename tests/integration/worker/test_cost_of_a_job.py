"""What one job costs, in things that can be counted: commands to Redis, calls of functions, Python's instructions.

Seconds belong to the machine; these do not. The bounds stand a little above what is counted today, so whoever makes a
job dearer hears of it here and not from a chart.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec
import pytest
import redis

import delayq
from delayq.core import names
from delayq.core.at_work import AT_WORK
from delayq.core.backoff import DEFAULT
from delayq.core.envelope import VERSION, Envelope, encode
from delayq.core.events import Event
from delayq.core.outcome import DONE, Policy
from delayq.drivers.base import Delivery, Settlement
from delayq.jobs.function import job
from delayq.jobs.registry import Registry, using
from delayq.worker.attempt import Attempt, Attempts
from delayq.worker.clock import boot_clock
from delayq.worker.crew_inline import Inline
from delayq.worker.holding import Holding
from delayq.worker.lines import Farewell, Lines, Progress
from delayq.worker.listeners import Listeners
from delayq.worker.meter import Meter
from delayq.worker.policies import Policies
from delayq.worker.slots import Slots, Word
from tests.support.station import QUEUE, Station
from tests.support.traffic import commands

JOBS = 200
PACKAGE = f"{Path(delayq.__file__).parent}{os.sep}"
NAME = "dq:host:1:a1"
DATA = {"order_id": 42}


@contextmanager
def calls() -> Iterator[Counter[str]]:
    """The calls of delayq's own functions during the block, by file; those of libraries differ by their versions.

    Ids are left out: how often a new head or new random ends are made for them is a matter of time.
    """
    found: Counter[str] = Counter()

    def note(frame: FrameType, event: str, argument: object) -> None:
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(PACKAGE) and path != names.__file__:
            found[path.removeprefix(PACKAGE)] += 1

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(before)


@contextmanager
def instructions() -> Iterator[Counter[str]]:
    """The instructions of Python that delayq's own functions run during the block, by file."""
    found: Counter[str] = Counter()

    def note(frame: FrameType, event: str, argument: object) -> Any:
        path = frame.f_code.co_filename
        if not path.startswith(PACKAGE) or path == names.__file__:
            return None
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        if event == "opcode":
            found[path.removeprefix(PACKAGE)] += 1
        return note

    before = sys.gettrace()
    sys.settrace(note)
    try:
        yield found
    finally:
        sys.settrace(before)


def test_one_job_scheduled_is_one_command(station: Station, redis_client: redis.Redis) -> None:
    for _ in range(2):  # the script and the queue become known
        station.client.schedule("note", DATA, delay="1h")
    with commands(redis_client) as sent, calls() as called:
        for _ in range(JOBS):
            station.client.schedule("note", DATA, delay="1h")
    assert sent == {"EVALSHA": JOBS}
    assert called.total() <= 44 * JOBS, called


def test_one_job_that_is_due_now_is_one_command(station: Station, redis_client: redis.Redis) -> None:
    """What comes before its bytes are sent is most of what its caller adds to the way to its handler."""
    for _ in range(2):
        station.client.schedule("note", DATA)
    with commands(redis_client) as sent, calls() as called:
        for _ in range(JOBS):
            station.client.schedule("note", DATA)
    assert sent == {"EVALSHA": JOBS}
    assert called.total() <= 41 * JOBS, called


def test_a_lone_job_is_read_in_few_steps(station: Station) -> None:
    """From the reply to the delivery: the switches behind it are those of the last time."""
    with closing(station.driver.consumer(NAME, [QUEUE], news=lambda: 0)) as consumer:
        for _ in range(13):
            station.client.schedule("note", DATA)
        for _ in range(3):
            assert consumer.wait(5.0).deliveries
        with calls() as called:
            for _ in range(10):
                assert consumer.wait(5.0).deliveries
    assert called.total() <= 53 * 10, called


def test_many_jobs_are_one_command_for_each_250(station: Station, redis_client: redis.Redis) -> None:
    jobs = [{"name": "note", "data": DATA, "delay": "1h"} for _ in range(JOBS)]
    for _ in range(2):
        station.client.schedule_many(jobs[:1])
    with commands(redis_client) as sent, calls() as called:
        station.client.schedule_many(jobs)
    assert sent == {"EVALSHA": 1}
    assert called.total() <= 11 * JOBS, called
    with instructions() as run:
        station.client.schedule_many(jobs)
    assert run.total() <= 520 * JOBS, run


def test_a_batch_is_read_and_settled_in_one_trip_each(station: Station, redis_client: redis.Redis) -> None:
    station.client.schedule_many([{"name": "note", "data": DATA} for _ in range(2 * JOBS)])
    with closing(station.driver.consumer(NAME, [QUEUE])) as consumer:
        first = consumer.fetch([], JOBS // 2)
        done = consumer.fetch([Settlement(one, DONE) for one in first.deliveries], JOBS)
        assert done.later is not None
        done.later()  # all scripts are known
        settlements = [Settlement(one, DONE) for one in done.deliveries]
        assert len(settlements) == JOBS
        with commands(redis_client) as sent, calls() as called:
            consumer.fetch(settlements, JOBS // 2)
    assert sent["EVALSHA"] == 1
    assert sent["XREADGROUP"] == 1
    assert sent.total() <= 5, "beside them, now and then, the switches and how safe a settled job must be"
    assert called.total() <= JOBS, called


class Silent:
    """A listener as that of a worker that keeps quiet."""

    only_trouble = True

    def __call__(self, event: Event) -> None:
        raise AssertionError(f"no event is made of jobs that do well: {event}")


@pytest.mark.parametrize("listeners", [Listeners(), Listeners([Silent()])], ids=["nobody listens", "quiet"])
def test_a_child_calls_twenty_functions_for_a_plain_job(listeners: Listeners) -> None:
    """From a delivery that waits to an outcome that is kept: books, envelope, policy, payload, meter, the handler."""
    registry, slots = Registry(), Slots((QUEUE,), JOBS)
    with using(registry):
        job("note")(_do_nothing)
    slots.floats[Word.LEASE] = 30.0
    holding = Holding(slots, lambda: 0)
    lines = Lines(holding.stop_asked, Progress(lambda told: None), Farewell())
    policies, meter = Policies(Policy(tries=5, backoff=DEFAULT, timeout_ms=60_000)), Meter((QUEUE,), ("note",))
    attempts = Attempts(registry, policies, lambda: 0, lines, listeners, meter=meter)
    crew = Inline(holding, attempts, lambda: None)

    def work(count: int) -> None:
        holding.add([_delivery(f"j{n}") for n in range(count)], boot_clock())
        while (held := holding.start()) is not None:
            attempt = attempts.prepare(held)
            assert isinstance(attempt, Attempt)
            holding.limit(held, attempt.limit_s)
            crew.start(held, attempt)
        holding.settled(holding.take_finished())

    work(1)  # the handler's policy and the row of the meter are found
    with calls() as called:
        work(JOBS)
    assert slots.ints[Word.DONE] == 1 + JOBS
    assert AT_WORK.get() is None, "what is logged between two jobs belongs to none"
    assert called.total() <= 19 * JOBS, called
    with instructions() as run:
        work(JOBS)
    assert run.total() <= 900 * JOBS, run


def _do_nothing(order_id: int) -> None:
    """As its name says."""


def _delivery(job_id: str) -> Delivery:
    raw = msgspec.Raw(b'{"order_id":42}')
    envelope = Envelope(v=VERSION, id=job_id, name="note", queue=QUEUE, data=raw, attempts=0, created_ms=0)
    return Delivery(QUEUE, job_id, f"1-{job_id[1:]}", encode(envelope), 0, 0)
