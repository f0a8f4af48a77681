"""One queue's line: callers who wait, served in the order they came, by one consumer of this process.

    take ─▶ waiting ─▶ pump: XREADGROUP … COUNT as many as are wanted ─▶ future of the first in line
                                 │  nothing there: again in 50 ms, or as soon as somebody joins
                                 ╰─ nobody waits any more: the pump ends

The consumer is a real one, under a name of its own. It renews nothing by itself: a delivery that its caller does not
renew is taken back by the janitor when its lease is over, as from any worker that vanished.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

from delayq.core.errors import BackendError
from delayq.drivers.base import Consumer, Delivery, Driver

LOG: Final = logging.getLogger("delayq.http")
T = TypeVar("T")
LOOK_S: Final = 0.05
SAY_S: Final = 10.0
"""How often the consumer says that it is here; its word holds three times as long."""
MOST: Final = 100
"""Deliveries of one read."""


@dataclass(slots=True, eq=False)
class Waiting:
    """Somebody who wants up to `count` deliveries, until `until_s` (monotonic)."""

    count: int
    until_s: float
    answer: asyncio.Future[list[Delivery]] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Line:
    """The line of one queue. `name` is its consumer's."""

    def __init__(self, driver: Driver, queue: str, name: str, stopping: asyncio.Event) -> None:
        self.queue = queue
        self.name = name
        self._driver = driver
        self._stopping = stopping
        self._waiting: deque[Waiting] = deque()
        self._joined = asyncio.Event()
        self._pump: asyncio.Task[None] | None = None
        self._consumer: Consumer | None = None
        self._opening = asyncio.Lock()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"pull-{queue}")
        self._said_s = float("-inf")

    @property
    def length(self) -> int:
        """How many wait."""
        return len(self._waiting)

    async def opened(self) -> Consumer:
        """The consumer, recorded in Redis before it is used."""
        async with self._opening:
            if self._consumer is None:
                self._consumer = await self._do(partial(self._driver.consumer, self.name, [self.queue]))
            return self._consumer

    async def take(self, count: int, wait_s: float) -> list[Delivery]:
        """Up to `count` deliveries; none when the time is over. Cancelled, it leaves the line."""
        mine = Waiting(count, time.monotonic() + wait_s)
        self._waiting.append(mine)
        self._joined.set()
        if self._pump is None or self._pump.done():
            self._pump = asyncio.create_task(self._serve(), name=f"pull {self.queue}")
        try:
            return await mine.answer
        except asyncio.CancelledError:
            if mine.answer.done() and not mine.answer.cancelled():
                await asyncio.shield(self.hand_back(mine.answer.result()))
            raise
        finally:
            if mine in self._waiting:
                self._waiting.remove(mine)

    async def hand_back(self, deliveries: Sequence[Delivery]) -> None:
        """Give back what nobody got to see; it costs no attempt."""
        if deliveries:
            consumer = await self.opened()
            await self._do(partial(consumer.hand_back, deliveries))

    async def close(self) -> None:
        """Let everybody go, and leave the group if nothing is held."""
        if self._pump is not None:
            await asyncio.wait([self._pump])
        if self._consumer is not None:
            try:
                await self._do(self._consumer.close)
            except BackendError as error:
                LOG.warning("the consumer of %s could not leave: %s", self.queue, error)
        self._thread.shutdown(wait=True)

    async def _serve(self) -> None:
        """The pump. What goes wrong goes to those who wait."""
        while self._waiting:
            self._joined.clear()
            try:
                served = await self._once(await self.opened())
            except Exception as error:  # noqa: BLE001  (told to each of them, who answer for it)
                for one in self._waiting:
                    if not one.answer.done():
                        one.answer.set_exception(error)
                self._waiting.clear()
                return
            if not served and self._waiting:
                await self._pause()

    async def _once(self, consumer: Consumer) -> bool:
        """Read, and serve as many as it is enough for; False when nothing came."""
        await self._say(consumer)
        late = self._stopping.is_set()
        wanted = min(MOST, sum(one.count for one in self._waiting))
        found = [] if late else list((await self._do(partial(consumer.fetch, (), wanted))).deliveries)
        any_came = bool(found)
        while found and self._waiting:
            one = self._waiting.popleft()
            if not one.answer.done():
                some, found = found[: one.count], found[one.count :]
                one.answer.set_result(some)
        if found:  # somebody left the line meanwhile
            await self._do(partial(consumer.hand_back, found))
        now_s = time.monotonic()
        for one in [one for one in self._waiting if late or one.until_s <= now_s]:
            self._waiting.remove(one)
            if not one.answer.done():
                one.answer.set_result([])
        return any_came

    async def _pause(self) -> None:
        nearest_s = min(one.until_s for one in self._waiting) - time.monotonic()
        try:
            await asyncio.wait_for(self._joined.wait(), max(0.0, min(LOOK_S, nearest_s)))
        except TimeoutError:
            return

    async def _say(self, consumer: Consumer) -> None:
        """Be on the list of workers, so that the consumer is not taken for a dead one."""
        if time.monotonic() - self._said_s >= SAY_S:
            self._said_s = time.monotonic()
            await self._do(partial(consumer.announce, {"state": "pull"}, 3 * SAY_S))

    async def _do(self, act: Callable[[], Any]) -> Any:
        """In the line's own thread: the consumer talks to Redis blocking, and belongs to one thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, act)
