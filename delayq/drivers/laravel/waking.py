"""Waits until a queue of Laravel's may have something: a token in its `notify`, or the time of its next job.

The token is Laravel's own (`block_for`): whoever puts a payload into the list puts one there. Times are waited for
here, because the server ends a wait only when its own clock ticks, up to 100 ms late.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from delayq.redis.calls.call import text
from delayq.redis.connect import Connector
from delayq.redis.laravel_keys import LaravelKeys
from delayq.redis.translate import translated

BLOCK_MS: Final = 1_000
LATE_S: Final = 0.12
"""How late the server may end a wait."""
SHORTEST_S: Final = 0.01


class Bell:
    """Belongs to the thread that reads. The connection is made when it is first needed."""

    def __init__(self, connector: Connector) -> None:
        self._connector = connector
        self._reader: Any = None
        self._next_ms: dict[str, int | None] = {}

    def expect(self, queue: str, next_ms: int | None) -> None:
        """When the queue is next worth a look, by the server's clock; None = nothing waits in it."""
        self._next_ms[queue] = next_ms

    def wait(self, queues: Sequence[LaravelKeys], seconds: float, now_ms: Callable[[], int]) -> str:
        """The queue whose token was taken; '' when the time is over, or a queue may have something due."""
        soon = [due for keys in queues if (due := self._next_ms.get(keys.queue)) is not None]
        left_s = max(0.0, (min(soon) - now_ms()) / 1000) if soon else seconds
        end = time.monotonic() + min(seconds, left_s)
        timed = left_s < seconds
        heard = self._listen(queues, min(seconds, left_s) - (LATE_S if timed else 0.0))
        if not heard and timed:
            time.sleep(max(0.0, end - time.monotonic()))
        return heard

    def close(self) -> None:
        """Close the connection; a later wait makes another."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    def _listen(self, queues: Sequence[LaravelKeys], seconds: float) -> str:
        seconds = min(seconds, BLOCK_MS / 1000)
        if seconds < SHORTEST_S:
            return ""
        if self._reader is None:
            self._reader = self._connector.reader(BLOCK_MS)
        keys = {one.of("notify"): one.queue for one in queues}
        try:
            with translated(self._connector.endpoint.where, place=f"one of the queues {', '.join(keys.values())}"):
                reply = self._reader.execute_command("BLPOP", *keys, f"{seconds:.3f}")
        except BaseException:
            self.close()  # a reply may be on its way that nobody will read
            raise
        return keys[text(reply[0])] if reply else ""
