"""streaq: concurrency 64, uvloop, nothing kept."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import roles
from streaq import Worker

worker = Worker(redis_url=roles.URL, concurrency=64)


@worker.task(ttl=0, silent=True)
async def note(data: dict[str, float]) -> None:
    roles.record(data["at"])


async def _send(payloads: list[dict[str, object]], at: float) -> None:
    due = datetime.fromtimestamp(at, UTC) if at else None
    tasks = [note.enqueue(data).start(schedule=due) if due else note.enqueue(data) for data in payloads]
    async with worker:
        await worker.enqueue_many(tasks)


def send(payloads: list[dict[str, object]], at: float) -> None:
    asyncio.run(_send(payloads, at))


if __name__ == "__main__":
    roles.main(send, worker.run_sync)
