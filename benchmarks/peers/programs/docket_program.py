"""docket: concurrency 50, looks every 2 ms, keeps no state. It has no bulk call: jobs are sent side by side."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any

import roles
from docket import Docket, Worker


async def note(data: dict[str, float]) -> None:
    roles.record(data["at"])


def docket() -> Docket:
    made = Docket(name="bench", url=roles.URL, execution_ttl=timedelta(0))
    made.register(note)
    return made


class Sender:
    """One loop and one docket for all that is sent."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()
        self.docket = docket()
        self.run(self.docket.__aenter__())

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def send(self, payloads: list[dict[str, object]], at: float) -> None:
        self.run(self._send(payloads, at))

    async def _send(self, payloads: list[dict[str, object]], at: float) -> None:
        due = datetime.fromtimestamp(at, UTC) if at else None
        for start in range(0, len(payloads), 50):
            some = payloads[start : start + 50]
            await asyncio.gather(*(self.docket.add(note, when=due)(data) for data in some))


async def _work() -> None:
    logging.disable()
    async with docket() as made:
        worker = Worker(
            made,
            concurrency=50,
            minimum_check_interval=timedelta(milliseconds=2),
            scheduling_resolution=timedelta(milliseconds=20),
        )
        async with worker:
            await worker.run_forever()


if __name__ == "__main__":
    roles.main(Sender().send if roles.ROLE != "work" else lambda p, at: None, lambda: asyncio.run(_work()))
