"""Questions about very many queues."""

from __future__ import annotations

import asyncio

from delayq.http.dashboard.house import AT_ONCE, of_each


class Counting:
    """Answers with the length of a name, and counts who waits."""

    def __init__(self) -> None:
        self.waiting = self.most = 0

    async def ask(self, queue: str) -> int:
        self.waiting += 1
        self.most = max(self.most, self.waiting)
        await asyncio.sleep(0)
        self.waiting -= 1
        return len(queue)


async def test_each_takes_a_connection_and_there_are_not_so_many() -> None:
    counting = Counting()
    queues = ["q" * n for n in range(3 * AT_ONCE + 1)]
    assert await of_each(queues, counting.ask) == list(range(3 * AT_ONCE + 1))
    assert counting.most == AT_ONCE
    assert await of_each([], counting.ask) == []
