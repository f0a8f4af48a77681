"""Members of batches that fail until they are mended or run until they are let go, and verbs that are cut off.

flaky = Flaky(station)
batch([flaky("a")], id="b").dispatch()
with work(station):
    finished("b")
    flaky.mend()
"""

from __future__ import annotations

from typing import Any

from delayq import Fail, JobContext
from delayq.core.batches import BatchInfo
from delayq.jobs.batch import find_batch
from delayq.jobs.dispatch import Dispatch, named
from delayq.redis.verbs import Flow
from tests.support.station import Station
from tests.support.steps import QUEUES, elsewhere
from tests.support.waiting import wait_until


class Flaky:
    """A job that fails for good until it is mended; some of it start together before any of them ends."""

    def __init__(self, station: Station, together: int = 1) -> None:
        self._mended, started = station.flag(), station.tape()
        mended, self.started = self._mended, started

        def flaky(name: str) -> None:
            started.append(name)
            wait_until(lambda: len(started[:]) >= together, what=f"{together} run at once")
            if not mended.is_set():
                raise Fail(f"{name} is broken")

        station.handles("flaky", flaky)

    def __call__(self, name: str) -> Dispatch:
        return elsewhere(named("flaky", {"name": name}).having(id=name))

    def mend(self) -> None:
        self._mended.set()


class Slow:
    """A job that runs until it is let go, and then does as it is told."""

    def __init__(self, station: Station) -> None:
        self.started, self.go_on, self.attempts = station.flag(), station.flag(), station.tape()
        started, go_on, attempts = self.started, self.go_on, self.attempts

        def slow(context: JobContext, fails: bool = False) -> None:
            attempts.append(context.attempt)
            started.set()
            assert go_on.wait(50)
            if fails:
                raise ValueError("slow cannot")

        station.handles("slow", slow)


def work(station: Station, **options: Any) -> Any:
    return station.working(queues=QUEUES, mover=True, **options)


def finished(batch_id: str) -> BatchInfo:
    wait_until(lambda: find_batch(batch_id).finished_ms, what="the batch has finished")
    return find_batch(batch_id)


def numbers(info: BatchInfo) -> tuple[int, int, int, int]:
    return info.pending, info.done, info.failed, info.skipped


def cut(flow: Flow[Any], after: int) -> Flow[None]:
    """The beginning of a verb, as a process leaves it that dies after so many calls."""
    answer: Any = None
    for _ in range(after):
        try:
            answer = yield flow.send(answer)
        except StopIteration:
            return
    flow.close()
