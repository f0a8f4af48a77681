"""arq: 200 at a time, looks every 20 ms, keeps no results. It has no bulk call: jobs are sent side by side."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from datetime import UTC, datetime
from typing import Any

import roles
from arq import create_pool
from arq.connections import RedisSettings
from arq.worker import Worker

SETTINGS = RedisSettings.from_dsn(roles.URL)


async def note(context: object, data: dict[str, float]) -> None:
    roles.record(data["at"])


class Sender:
    """One loop and one pool for all that is sent."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()
        self.pool = self.run(create_pool(SETTINGS))

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def send(self, payloads: list[dict[str, object]], at: float) -> None:
        self.run(self._send(payloads, at))

    async def _send(self, payloads: list[dict[str, object]], at: float) -> None:
        due = datetime.fromtimestamp(at, UTC) if at else None
        for start in range(0, len(payloads), 50):
            some = payloads[start : start + 50]
            await asyncio.gather(*(self.pool.enqueue_job("note", data, _defer_until=due) for data in some))


def work() -> None:
    Worker([note], redis_settings=SETTINGS, max_jobs=200, poll_delay=0.02, keep_result=0).run()


if __name__ == "__main__":
    roles.main(Sender().send if roles.ROLE != "work" else lambda payloads, at: None, work)
