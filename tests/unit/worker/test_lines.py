"""How running jobs and their worker talk, without a server."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence

import pytest

from delayq.core.errors import BackendUnavailable, InvalidInput, InvalidPayload
from delayq.core.limiting import Limits
from delayq.core.outcome import DONE
from delayq.core.progress import Told
from delayq.drivers.base import Delivery
from delayq.jobs.context import JobContext
from delayq.jobs.stopping import Stopping
from delayq.jobs.talk import Talk
from delayq.jobs.teller import MAX_PARTIAL, Teller
from delayq.worker.held import Held
from delayq.worker.lines import Farewell, Progress
from tests.support.waiting import wait_until


def held(name: str = "j") -> Held:
    return Held(Delivery("q", name, "1-1", b"{}", 0, 0), 0, 0.0, 2)


class Paper:
    """Takes what is written; fails as often as it is told."""

    def __init__(self, failures: int = 0) -> None:
        self.written: list[list[tuple[str, Told]]] = []
        self.failures = failures

    def write(self, told: Sequence[tuple[Delivery, Told]]) -> None:
        if self.failures:
            self.failures -= 1
            raise BackendUnavailable("away")
        self.written.append([(delivery.id, word) for delivery, word in told])

    @property
    def last(self) -> tuple[str, Told] | None:
        return self.written[-1][-1] if self.written else None


Make = Callable[[Paper], Progress]


@pytest.fixture
def make() -> Iterator[Make]:
    """Makes what writes to a paper; its thread is ended with the test."""
    made: list[Progress] = []

    def make(paper: Paper) -> Progress:
        made.append(Progress(paper.write))
        return made[-1]

    yield make
    for progress in made:
        progress.close()


def test_a_thousand_words_are_few_writes_and_the_last_word_is_among_them(make: Make) -> None:
    paper, job = Paper(), held()
    progress = make(paper)
    for done in range(1_000):
        progress.tell(job, Told(done=done))
    wait_until(lambda: paper.last == ("j", Told(done=999)), what="the last word is written")
    assert len(paper.written) <= 3


def test_what_could_not_be_written_is_tried_again_with_what_is_news_by_then(make: Make) -> None:
    paper, job = Paper(failures=1), held()
    progress = make(paper)
    progress.tell(job, Told(done=1))
    wait_until(lambda: paper.failures == 0, what="it failed once")
    progress.tell(job, Told(done=2))
    wait_until(lambda: paper.written, what="it is written")
    assert paper.written == [[("j", Told(done=2))]]


def test_a_job_that_has_ended_tells_nothing_more(make: Make) -> None:
    paper, gone, there = Paper(), held("gone"), held("there")
    gone.outcome = DONE
    progress = make(paper)
    progress.tell(gone, Told(done=1))
    progress.tell(there, Told(done=1))
    wait_until(lambda: paper.last is not None and paper.last[0] == "there", what="the other one's word is written")
    assert all(job != "gone" for batch in paper.written for job, _ in batch)


def test_nobody_tells_no_thread() -> None:
    before = threading.active_count()
    Progress(Paper().write)
    assert threading.active_count() == before


def test_the_context_keeps_both_kinds_of_words() -> None:
    told: list[Told] = []

    class Line:
        @property
        def limits(self) -> Limits:
            raise AssertionError("the job has none")

        def listener(self) -> Stopping:
            raise AssertionError("the job did not ask for it")

        def teller(self, held: object) -> Teller:
            return Teller(told.append)

    context = JobContext("j", "n", "q", 1, 5, 0, 0, "1-1", talk=Talk(Line()))
    context.progress(1, 4, "x" * 600)
    rows = [1]
    context.partial(rows)
    rows.append(2)
    context.progress(2)
    assert told[0] == Told(1, 4, "x" * 500)
    assert told[-1] == Told(2, None, "", b"[1]"), "what the handler changes later does not count"


def test_outside_of_a_worker_nothing_happens() -> None:
    context = JobContext("j", "n", "q", 1, 5, 0, 0, "1-1")
    context.progress(1)
    context.partial({"a": 1})
    assert not context.stopping.is_set()
    assert not context.stopping.wait(0)


def test_what_may_not_be_told() -> None:
    context = JobContext("j", "n", "q", 1, 5, 0, 0, "1-1")
    with pytest.raises(InvalidInput):
        context.progress(1, -1)
    with pytest.raises(InvalidPayload):
        context.partial("x" * MAX_PARTIAL)


def test_callbacks_are_called_once_also_those_that_come_late() -> None:
    farewell, heard = Farewell(), threading.Semaphore(0)
    stopping = farewell.listener()
    stopping.then(heard.release)
    assert not stopping.is_set()
    farewell.say()
    farewell.say()
    assert heard.acquire(timeout=5)
    stopping.then(heard.release)
    assert heard.acquire(timeout=5)
    assert not heard.acquire(timeout=0.05)
    assert stopping.wait(0)


def test_a_callback_that_fails_hurts_no_other(caplog: pytest.LogCaptureFixture) -> None:
    farewell, heard = Farewell(), threading.Event()
    stopping = farewell.listener()

    def bad() -> None:
        raise ValueError("no")

    stopping.then(bad)
    stopping.then(heard.set)
    farewell.say()
    assert heard.wait(5)
    wait_until(lambda: "a callback of a job" in caplog.text, what="it is said")


def test_an_attempt_that_is_over_is_forgotten() -> None:
    farewell, heard = Farewell(), threading.Event()
    farewell.listener().then(heard.set)
    farewell.say()
    assert not heard.wait(0.05)


async def test_a_coroutine_awaits_the_end() -> None:
    event = threading.Event()
    stopping = Stopping(event)
    waiting = asyncio.create_task(stopping.arrived())
    await asyncio.sleep(0)
    assert not waiting.done()
    event.set()
    stopping.fire()
    await asyncio.wait_for(waiting, 5)
    await asyncio.wait_for(stopping.arrived(), 5)
