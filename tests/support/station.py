"""One delayq on one server, put together by hand: a client, a driver, handlers, and workers in processes of their own.

    station.handles("order.close", close)         a handler, in a registry of the station's own
    station.drain()                               a worker until nothing is ready; its reason
    with station.working() as running: ...        a worker, asked to stop at the end
    station.events                                what the workers told their listeners
    station.said()                                what they logged
    station.tape() tally() flag()                 what handlers, which run elsewhere, tell the test, and hear from it

Workers are forked from the test, so handlers may be closures. What such a handler changes, it changes in its own
process: only tapes, tallies and flags come back.

`clock` gives the scripts another time than the server's; a worker has the time of its start.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from delayq.core.backoff import Fixed
from delayq.core.events import Event, JobEnded, JobFenced, Listener
from delayq.core.options import Options
from delayq.core.outcome import Policy
from delayq.core.shards import all_shards
from delayq.core.states import State
from delayq.core.views import JobInfo
from delayq.drivers.redis_streams import RedisStreams, RedisStreamsFactory
from delayq.jobs.function import job
from delayq.jobs.registry import Registry, using
from delayq.redis.client import Client
from delayq.redis.connect import Connector, Waits
from delayq.redis.keys import Keys
from delayq.worker.options import StopReason, WorkerOptions
from delayq.worker.plan import Plan
from tests.support.running import Running, Said
from tests.support.tape import Flag, Tally, Tape, Tapes
from tests.support.waiting import wait_until

QUEUE = "orders"
PATIENCE_S = 20.0


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
        self._folder = tempfile.TemporaryDirectory(prefix="dq-station-")
        self._tapes = Tapes(Path(self._folder.name))
        self.events: Tape[Event] = self.tape()
        self.listeners: list[Listener] = [self._hear]
        self._said = Said(self.tape(), self.tape())

    def clock(self) -> int | None:
        """The time the scripts are told; None = the server's own."""
        return self.now_ms

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections, and forget what was said."""
        self.connector.close()
        self._tapes.close()
        self._folder.cleanup()

    def tape(self) -> Tape[Any]:
        """A list that handlers may append to."""
        return self._tapes.tape()

    def tally(self) -> Tally[Any]:
        """A counter that handlers may add to."""
        return self._tapes.tally()

    def flag(self) -> Flag:
        """An event that handlers may set, or wait for."""
        return self._tapes.flag()

    # -- handlers and workers ----------------------------------------------------------------------------------------

    def handles(self, name: str, function: Callable[..., Any], **options: Any) -> None:
        """Register a handler."""
        with using(self.registry):
            job(name, **options)(function)

    def plan(self, url: str = "", waits: Waits | None = None, /, **options: Any) -> Plan:
        """A worker's: it serves `orders` unless told otherwise, without mover and janitor."""
        fallback = Policy(tries=self.options.tries, backoff=self.options.backoff)
        given = {"queues": (QUEUE,), "fallback": fallback, "mover": False, "sleep_ms": 100, **options}
        factory = RedisStreamsFactory(url or self.url, self.options, self.clock, waits)
        keyring = self.options.keyring
        return Plan(factory, self.registry, WorkerOptions(**given), self.listeners, keyring=keyring)

    def run(self, **options: Any) -> StopReason:
        """A worker until it stops by itself; why it did."""
        return Running(self.plan(**options), self._said).join()

    def drain(self, **options: Any) -> StopReason:
        """Work until nothing is ready."""
        return self.run(**{"stop_when_empty": True, **options})

    @contextmanager
    def working(self, url: str = "", waits: Waits | None = None, /, **options: Any) -> Iterator[Running]:
        """A worker; it is asked to stop at the end of the block unless it has. `url`: its own way to the server."""
        running = Running(self.plan(url, waits, **options), self._said)
        try:
            yield running
        finally:
            running.stop()

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

    def idle(self, queues: Sequence[str]) -> bool:
        """Whether nothing waits, runs or is to be carried in these queues, whatever shards they have."""
        shards = all_shards(queues, self.client.run(self.client.verbs.shards()))
        with self.connector.commands().pipeline(transaction=False) as pipe:
            for queue in shards:
                keys = self.keys(queue)
                pipe.xlen(keys.of("outbox"))
                pipe.zcard(keys.of("scheduled"))
                pipe.hlen(keys.of("entries"))
            return not any(pipe.execute())

    def said(self) -> str:
        """What the workers logged."""
        return self._said.text()

    def ends(self, job_id: str) -> list[str]:
        """How the attempts of one job ended, in order."""
        return [event.outcome for event in self.events if isinstance(event, JobEnded) and event.id == job_id]

    def fences(self) -> list[JobFenced]:
        """Settlements that came too late."""
        return [event for event in self.events if isinstance(event, JobFenced)]

    def _hear(self, event: Event) -> None:
        """The error stays where it was raised: not every exception can travel."""
        self.events.append(replace(event, error=None) if isinstance(event, JobEnded) else event)
