"""Sentinels replace a primary that is alive and still accepts jobs: producers leave it. The figures are printed."""

import asyncio
import os
import threading
import time
from collections.abc import Callable
from typing import Final

import pytest

from delayq import AsyncDelayQ, DelayQ, DelayqError
from tests.support.topologies import Server, command, sentinel_group, walled_off
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(400)]

TIMES: Final = 5
WITHIN: Final = 2.0
EVERY: Final = 0.01
JOBS: Final = "delayq:{default}:jobs"


class Producer(threading.Thread):
    """Schedules jobs with one client until `stopped`. `confirmed`: id of each job, and when its call returned."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self.url = url
        self.confirmed: list[tuple[str, float]] = []
        self.errors: list[DelayqError] = []
        self.stopped = threading.Event()

    def run(self) -> None:
        with DelayQ(self.url) as client:
            while not self.stopped.wait(EVERY):
                try:
                    job_id = client.schedule("n", delay="1h").id
                except DelayqError as error:
                    self.errors.append(error)
                else:
                    self.confirmed.append((job_id, time.time()))

    def stop(self) -> None:
        self.stopped.set()
        self.join()


class AsyncProducer(Producer):
    """Schedules jobs in an event loop."""

    def run(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        async with AsyncDelayQ(self.url) as client:
            while not self.stopped.is_set():
                await asyncio.sleep(EVERY)
                try:
                    job_id = (await client.schedule("n", delay="1h")).id
                except DelayqError as error:
                    self.errors.append(error)
                else:
                    self.confirmed.append((job_id, time.time()))


def has(server: Server, job_id: str) -> bool:
    return bool(command(server, "HEXISTS", JOBS, job_id))


def test_producers_leave_a_primary_that_was_replaced() -> None:
    kinds: list[Callable[[str], Producer]] = [Producer, AsyncProducer]
    first_on_new: list[float] = []
    last_on_old: list[float] = []
    lost = 0
    with sentinel_group() as group:
        for _ in range(TIMES):
            wait_until(lambda: group.is_whole(replicas=2), patience=60)
            producers = [kind(group.url) for kind in kinds]
            for producer in producers:
                producer.start()
            wait_until(lambda: all(len(one.confirmed) > 10 for one in producers))  # noqa: B023
            with walled_off(group) as old:
                agreed = time.time()
                new = group.primary()
                time.sleep(WITHIN + 2)
                for producer in producers:
                    producer.stop()
                assert command(old, "ROLE")[0] == "master"
                for producer in producers:
                    after = [(job_id, at) for job_id, at in producer.confirmed if not has(old, job_id)]
                    only_old = [at for job_id, at in producer.confirmed if not has(new, job_id)]
                    assert all(has(new, job_id) for job_id, _ in after)
                    first_on_new.append(after[0][1] - agreed)
                    last_on_old.append(max(only_old, default=agreed) - agreed)
                    lost += len(only_old)
                    assert not producer.errors
    print(
        f"\nseconds from the agreement of the sentinels to the first job on the new primary: {shown(first_on_new)}\n"
        f"  and to the last job on the old primary: {shown(last_on_old)}\n"
        f"  {lost} jobs were stored on the old primary only; load {os.getloadavg()[0]:.1f}"
    )
    assert max(first_on_new) <= WITHIN
    assert max(last_on_old) <= WITHIN


def shown(seconds: list[float]) -> str:
    return ", ".join(f"{one:.2f}" for one in seconds) + f" (a thread, an event loop, {TIMES} times)"
