"""delayq as a program would put it together, on a private server."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from benchmarks.server import PrivateServer
from benchmarks.shared import Marks
from benchmarks.work import QUEUE
from delayq.core.options import Options
from delayq.core.outcome import Policy
from delayq.drivers.redis_streams import RedisStreams, RedisStreamsFactory
from delayq.jobs.registry import Registry
from delayq.redis.calls import deliver
from delayq.redis.calls.call import Scope
from delayq.redis.client import Client
from delayq.redis.connect import Connector
from delayq.redis.send import send
from delayq.worker.fork import Process, fork, is_told
from delayq.worker.options import WorkerOptions
from delayq.worker.plan import Plan
from delayq.worker.supervisor import Supervisor

PATIENCE_S = 60.0


class Rig:
    """One queue of delayq: a client, a driver, workers."""

    def __init__(self, server: PrivateServer, options: Options | None = None) -> None:
        self.options = options or Options(high_water=10_000_000)
        self._url = server.url
        self.connector = Connector(server.url)
        self.client = Client(self.connector, self.options)
        self.driver = RedisStreams(self.connector, self.options)

    @property
    def scope(self) -> Scope:
        """The measured queue, on the server's clock."""
        return Scope(self.options, QUEUE)

    def clear(self, client: Any) -> None:
        """Forget every job of the queue, and the queue itself; scripts stay known."""
        keys = self.scope.keys
        client.delete(*(keys.of(name) for name in ("scheduled", "jobs", "stream", "entries", "meta")))
        self.client.verbs.forget_registered(QUEUE)

    def promote_at(self, now_ms: int) -> int:
        """Batches until nothing is due at `now_ms`; how many moved."""
        scope, moved = Scope(self.options, QUEUE, now_ms), 0
        while some := self.connector.call(lambda client: send(client, deliver.promote(scope)), safe=True).moved:
            moved += some
        return moved

    @contextmanager
    def running(
        self,
        registry: Registry,
        *,
        queues: tuple[str, ...] = (QUEUE,),
        mover: bool = True,
        processes: int = 1,
        concurrency: int = 100,
    ) -> Iterator[Process]:
        """A worker as `delayq work` runs it, in processes of its own."""
        fallback = Policy(tries=self.options.tries, backoff=self.options.backoff)
        options = WorkerOptions(
            queues=queues, fallback=fallback, mover=mover, processes=processes, concurrency=concurrency
        )
        factory = RedisStreamsFactory(self._url, self.options)

        def work(pipe: int) -> None:
            Supervisor(Plan(factory, registry, options, told=partial(is_told, pipe))).run()

        worker = fork(work, [])
        try:
            yield worker
        finally:
            worker.tell()
            worker.wait()

    def drain(self, registry: Registry, first: Marks, *, processes: int = 1) -> float:
        """Let a worker empty the queue; seconds from the first handler's start until the last job is settled.

        The handler notes that in `first`, by `time.perf_counter()`, which is the same in all processes.
        """
        entries = self.scope.keys.of("entries")
        with self.running(registry, mover=False, processes=processes):
            deadline = time.monotonic() + PATIENCE_S
            while self.connector.commands().hlen(entries):
                if time.monotonic() > deadline:
                    raise RuntimeError("the queue did not become empty")
                time.sleep(0.002)
            end = time.perf_counter()
        return end - first.taken()[0]

    def close(self) -> None:
        """Close the connections."""
        self.connector.close()


@contextmanager
def quiet_logs() -> Iterator[None]:
    """What loops say belongs to stderr, not into a table; only errors come through."""
    log = logging.getLogger("delayq")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


@contextmanager
def rig_on(server: PrivateServer) -> Iterator[Rig]:
    """A rig whose connections are closed at the end."""
    rig = Rig(server)
    try:
        yield rig
    finally:
        rig.close()
