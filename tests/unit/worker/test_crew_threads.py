"""An exception aimed at one attempt of a thread hits that attempt or nothing."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, cast

import pytest

from delayq.core.interrupts import JobInterrupted, JobTimedOut
from delayq.core.outcome import Outcome
from delayq.drivers.base import Delivery
from delayq.worker.attempt import Attempt, Attempts
from delayq.worker.crew_threads import Threads, _absorb, _Desk
from delayq.worker.held import Held
from delayq.worker.holding import Holding
from tests.support.waiting import wait_until

ROUNDS = 300
MOST_ROUNDS = 3_000  # for when chance hits none in those


class Short:
    """Stands for an attempt: a little Python, for a random moment."""

    def __init__(self, number: int) -> None:
        self.number = number

    def call(self) -> int:
        end = time.perf_counter() + random.random() * 0.0005
        while time.perf_counter() < end:
            pass
        return self.number


class Book:
    """Stands for both what is held and how attempts end: it writes down what it is told."""

    def __init__(self) -> None:
        self.ends: dict[int, tuple[Any, BaseException | None]] = {}

    def conclude(self, attempt: Short, result: Any, error: BaseException | None) -> int:
        self.ends[attempt.number] = (result, error)
        return attempt.number

    def finish(self, held: Held, outcome: Outcome) -> bool:
        return True


@pytest.fixture
def restless() -> Iterator[None]:
    """The interpreter changes threads as often as it can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.00001)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("restless")
def test_it_never_hits_the_next_one() -> None:
    book = Book()
    crew = Threads(cast(Holding, book), cast(Attempts, book), 1, lambda: None)
    aimed = set()
    random.seed(7)
    for number in range(MOST_ROUNDS):
        if number >= ROUNDS and any(error for _, error in book.ends.values()):
            break
        held = Held(Delivery("q", f"j{number}", f"{number}-0", b"", 0, 0), 0, 0.0, 2)
        crew.start(held, cast(Attempt, Short(number)))
        if number % 2:
            time.sleep(random.random() * 0.0005)
            crew.interrupt(held, JobTimedOut())
            aimed.add(number)
        wait_until(lambda: crew.room() == 1, what="the thread is free")
    crew.close()
    wait_until(lambda: not [t for t in threading.enumerate() if t.name.startswith("delayq-job")], what="it has ended")
    assert len(book.ends) >= ROUNDS
    for number, (result, error) in book.ends.items():
        if number not in aimed:
            assert (result, error) == (number, None)
        else:
            assert (result == number and error is None) or isinstance(error, JobTimedOut)
    assert any(isinstance(error, JobTimedOut) for _, error in book.ends.values()), "some were hit"


def test_a_profiler_goes_on_after_an_interruption() -> None:
    """In a process of its own: a loop that looks for an exception that is not there cannot be ended from inside."""
    subprocess.run([sys.executable, "-c", f"from {__name__} import profiled; profiled()"], timeout=30, check=True)


def profiled() -> None:
    """An exception was aimed at an attempt that had ended; then a profiler looks on."""
    held = Held(Delivery("q", "j1", "1-0", b"", 0, 0), 0, 0.0, 2)
    desk = _Desk()
    desk.aimed, desk.sent = held, True
    with suppress(JobInterrupted):
        _absorb(desk, held)
    sys.setprofile(lambda *_: None)
    sum(abs(number) for number in range(1_000))
