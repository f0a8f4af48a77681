"""A steady stream of jobs while something happens to the servers, and what became of each call.

with Load(client, per_second=50) as load:
    load.flow(25)                 25 more were taken
    load.hold() ... load.go_on()  no call is under way in between
load.taken, load.unknown, load.refused
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from delayq.core.errors import BackendUnavailable, DelayqError, OutcomeUnknown
from delayq.redis.client import Client
from tests.support.machine import fair_clock
from tests.support.waiting import wait_until

THREADS = 4


class Load:
    """Jobs `name` with the data `{"n": "<id>"}`, due now or 100 ms later, to each of the queues in turn."""

    def __init__(
        self, client: Client, *, per_second: int = 50, queues: Sequence[str] = ("orders",), name: str = "note"
    ) -> None:
        self.taken: list[str] = []
        self.unknown: list[str] = []
        self.refused: list[str] = []
        """Errors that say nothing was stored, in words."""
        self.begun = 0
        self.longest_s = 0.0
        """The longest call, in time that the machine had for it."""
        self._client = client
        self._pause_s = THREADS / per_second
        self._queues = queues
        self._name = name
        self._stop = threading.Event()
        self._may = threading.Event()
        self._may.set()
        self._under_way = 0
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._run, args=(n,)) for n in range(THREADS)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        self._may.set()
        for thread in self._threads:
            thread.join()

    def flow(self, more: int, timeout: float = 60.0) -> None:
        """Wait until so many more were taken."""
        enough = len(self.taken) + more
        wait_until(lambda: len(self.taken) >= enough, timeout=timeout, what=f"{more} more jobs are taken")

    def meet(self) -> None:
        """Wait until calls have met what is the case now: some are under way, or three have begun since."""
        enough = self.begun + 3
        wait_until(lambda: self._under_way >= 2 or self.begun >= enough, what="calls meet what is the case now")

    def hold(self) -> None:
        """No call from here on, and none under way."""
        self._may.clear()
        wait_until(lambda: self._under_way == 0, what="no call is under way")

    def go_on(self) -> None:
        """Undo `hold`."""
        self._may.set()

    def _run(self, thread: int) -> None:
        n = 0
        while not self._stop.is_set():
            with self._lock:
                go = self._may.is_set()
                self._under_way += go
                self.begun += go
            if go:
                self._schedule(f"{thread}-{n}", n)
                n += 1
                with self._lock:
                    self._under_way -= 1
            else:
                self._may.wait(0.1)
            time.sleep(self._pause_s)

    def _schedule(self, job_id: str, n: int) -> None:
        queue, delay = self._queues[n % len(self._queues)], ("0s", "100ms")[n % 2]
        began = fair_clock()
        try:
            self._client.schedule(self._name, {"n": job_id}, id=job_id, queue=queue, delay=delay)
        except OutcomeUnknown:
            self.unknown.append(job_id)
        except BackendUnavailable as error:
            self.refused.append(str(error))
        except DelayqError as error:
            self.refused.append(f"{job_id}: {error!r}")
        else:
            self.taken.append(job_id)
        self.longest_s = max(self.longest_s, fair_clock() - began)
