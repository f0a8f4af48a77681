"""delayq as a program would put it together, on a private server."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.server import PrivateServer
from benchmarks.work import QUEUE
from delayq.core.options import Options
from delayq.core.outcome import Policy
from delayq.drivers.redis_streams import RedisStreams
from delayq.jobs.registry import Registry
from delayq.redis.calls import deliver
from delayq.redis.calls.call import Scope
from delayq.redis.client import Client
from delayq.redis.connect import Connector
from delayq.redis.send import send
from delayq.worker.options import WorkerOptions
from delayq.worker.worker import Worker


class Rig:
    """One queue of delayq: a client, a driver, workers."""

    def __init__(self, server: PrivateServer, options: Options | None = None) -> None:
        self.options = options or Options(high_water=10_000_000)
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

    def worker(self, registry: Registry, *, mover: bool, stop_when_empty: bool = False) -> Worker:
        """A worker with default settings."""
        fallback = Policy(tries=self.options.tries, backoff=self.options.backoff)
        options = WorkerOptions(queues=(QUEUE,), fallback=fallback, mover=mover, stop_when_empty=stop_when_empty)
        return Worker(self.driver, registry, options)

    @contextmanager
    def running(self, registry: Registry) -> Iterator[Worker]:
        """A worker with mover and janitor, as `delayq work` runs it, in threads of this process."""
        worker = self.worker(registry, mover=True)
        thread = threading.Thread(target=worker.run, name="bench-worker")
        thread.start()
        try:
            yield worker
        finally:
            worker.signals.ask()
            thread.join()

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
