"""taskiq over a Redis stream: prefetch 100, the schedule read once a second. It has no bulk call."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any

import roles
from taskiq import TaskiqScheduler
from taskiq.api import run_receiver_task, run_scheduler_task
from taskiq_redis import ListRedisScheduleSource, RedisStreamBroker

broker = RedisStreamBroker(url=roles.URL)
source = ListRedisScheduleSource(roles.URL)


@broker.task(task_name="note")
async def note(data: dict[str, float]) -> None:
    roles.record(data["at"])


class Sender:
    """One loop for all that is sent."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()
        self.run(broker.startup())

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def send(self, payloads: list[dict[str, object]], at: float) -> None:
        self.run(self._send(payloads, at))

    async def _send(self, payloads: list[dict[str, object]], at: float) -> None:
        due = datetime.fromtimestamp(at, UTC) if at else None
        for start in range(0, len(payloads), 50):
            some = payloads[start : start + 50]
            await asyncio.gather(
                *(note.schedule_by_time(source, due, data) if due else note.kiq(data) for data in some)
            )


async def _work() -> None:
    broker.is_worker_process = True
    await broker.startup()
    scheduler = TaskiqScheduler(broker, [source])
    await asyncio.gather(
        run_receiver_task(broker, max_prefetch=100, run_startup=False),
        run_scheduler_task(scheduler, run_startup=True, interval=timedelta(seconds=1)),
    )


if __name__ == "__main__":
    roles.main(Sender().send if roles.ROLE != "work" else lambda p, at: None, lambda: asyncio.run(_work()))
