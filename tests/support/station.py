"""One delayq on one server, put together by hand: a client, a driver, handlers, and workers in threads.

    station.handles("order.close", close)         a handler, in a registry of the station's own
    station.drain()                               a worker in this thread until nothing is ready
    with station.working() as running: ...        a worker in a thread, asked to stop at the end
    station.events                                what the workers told their listeners

`clock` gives the scripts another time than the server's; a test that sets `station.now_ms` moves it by hand.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

from delayq.core.backoff import Fixed
from delayq.core.events import Event, JobEnded, JobFenced, Listener
from delayq.core.options import Options
from delayq.core.outcome import Policy
from delayq.core.states import State
from delayq.core.views import JobInfo
from delayq.drivers.redis_streams import RedisStreams
from delayq.jobs.function import job
from delayq.jobs.registry import Registry, using
from delayq.redis.client import Client
from delayq.redis.connect import Connector
from delayq.redis.keys import Keys
from delayq.worker.options import StopReason, WorkerOptions
from delayq.worker.worker import Worker
from tests.support.waiting import wait_until

QUEUE = "orders"
PATIENCE_S = 15.0


class Running:
    """A worker in a thread."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.reason: StopReason | None = None
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="test-worker", daemon=True)
        self._thread.start()

    def stop(self, timeout: float = PATIENCE_S) -> StopReason:
        """Ask for a stop and wait for it."""
        self.worker.signals.ask()
        return self.join(timeout)

    def join(self, timeout: float = PATIENCE_S) -> StopReason:
        """Wait until the worker stops by itself; its reason."""
        self._thread.join(timeout)
        assert not self._thread.is_alive(), f"the worker did not stop within {timeout:g} s"
        if self.error is not None:
            raise self.error
        assert self.reason is not None
        return self.reason

    def _run(self) -> None:
        try:
            self.reason = self.worker.run()
        except BaseException as error:  # noqa: BLE001  (raised again where the test waits for it)
            self.error = error


class Station:
    """Everything a test needs to schedule jobs and have them run. Close it."""

    def __init__(self, url: str, **options: Any) -> None:
        given = {"lease_ms": 5_000, "tries": 3, "backoff": Fixed(10), "queue": QUEUE, **options}
        self.url = url
        self.options = Options(**given)
        self.now_ms: int | None = None
        self.connector = Connector(url)
        self.client = Client(self.connector, self.options, self.clock)
        self.driver = RedisStreams(self.connector, self.options, self.clock)
        self.registry = Registry()
        self.events: list[Event] = []
        self.listeners: list[Listener] = [self.events.append]

    def clock(self) -> int | None:
        """The time the scripts are told; None = the server's own."""
        return self.now_ms

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self.connector.close()

    # -- handlers and workers ----------------------------------------------------------------------------------------

    def handles(self, name: str, function: Callable[..., Any], **options: Any) -> None:
        """Register a handler."""
        with using(self.registry):
            job(name, **options)(function)

    def worker(self, driver: RedisStreams | None = None, /, **options: Any) -> Worker:
        """A worker that serves `orders` unless told otherwise, without mover and janitor."""
        fallback = Policy(tries=self.options.tries, backoff=self.options.backoff)
        given = {"queues": (QUEUE,), "fallback": fallback, "mover": False, "sleep_ms": 100, **options}
        return Worker(driver or self.driver, self.registry, WorkerOptions(**given), self.listeners)

    def drain(self, **options: Any) -> StopReason:
        """Work in this thread until nothing is ready."""
        return self.worker(**{"stop_when_empty": True, **options}).run()

    @contextmanager
    def working(self, driver: RedisStreams | None = None, /, **options: Any) -> Iterator[Running]:
        """A worker in a thread; it is asked to stop at the end of the block unless it has."""
        running = Running(self.worker(driver, **options))
        try:
            yield running
        finally:
            running.worker.signals.ask()
            running.join()

    # -- looking -----------------------------------------------------------------------------------------------------

    def keys(self, queue: str = QUEUE) -> Keys:
        """The keys of a queue."""
        return Keys(self.options.prefix, queue)

    def state(self, job_id: str, queue: str = QUEUE) -> State:
        """Where a job is."""
        info = self.client.get(job_id, queue=queue)
        return info.state if info else State.ABSENT

    def job(self, job_id: str, queue: str = QUEUE) -> JobInfo:
        """A job that must be there."""
        info = self.client.get(job_id, queue=queue)
        assert info is not None, f"{job_id} is not there"
        return info

    def until(self, job_id: str, *states: State, queue: str = QUEUE, timeout: float = PATIENCE_S) -> None:
        """Wait until a job is in one of the states."""
        what = f"{job_id} is {' or '.join(states)}"
        wait_until(lambda: self.state(job_id, queue) in states, timeout=timeout, what=what)

    def until_gone(self, job_ids: Sequence[str], queue: str = QUEUE, timeout: float = PATIENCE_S) -> None:
        """Wait until none of the jobs is there any more."""
        left = self.keys(queue).of("jobs")

        def gone() -> bool:
            rows = self.connector.commands().hmget(left, list(job_ids))
            return not any(row is not None for row in rows)

        wait_until(gone, timeout=timeout, what=f"{len(job_ids)} jobs are gone")

    def ends(self, job_id: str) -> list[str]:
        """How the attempts of one job ended, in order."""
        return [event.outcome for event in self.events if isinstance(event, JobEnded) and event.id == job_id]

    def fences(self) -> list[JobFenced]:
        """Settlements that came too late."""
        return [event for event in self.events if isinstance(event, JobFenced)]
