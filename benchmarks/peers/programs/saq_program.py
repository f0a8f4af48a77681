"""SAQ: 20 at a time, results dropped. It has no bulk call: jobs are sent side by side. Due times are whole seconds."""

from __future__ import annotations

import asyncio
import threading

import roles
from saq import Queue, Worker

queue = Queue.from_url(roles.URL)


async def note(context: object, *, data: dict[str, float]) -> None:
    roles.record(data["at"])


class Sender:
    """One loop for all that is sent."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()

    def send(self, payloads: list[dict[str, object]], at: float) -> None:
        asyncio.run_coroutine_threadsafe(self._send(payloads, at), self.loop).result()

    async def _send(self, payloads: list[dict[str, object]], at: float) -> None:
        for start in range(0, len(payloads), 20):
            some = payloads[start : start + 20]
            await asyncio.gather(*(queue.enqueue("note", data=data, scheduled=int(at), ttl=-1) for data in some))


def work() -> None:
    worker = Worker(queue, functions=[note], concurrency=20, timers={"schedule": 1})
    asyncio.run(worker.start())


if __name__ == "__main__":
    roles.main(Sender().send, work)
