"""The server's time, remembered: asked for now and then, and carried on by a clock that nobody sets."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

COUNTS_MS = 60_000


class ServerTime:
    """What was seen last counts for a minute."""

    def __init__(self) -> None:
        self._seen_ms = 0
        self._server_ms = 0

    @property
    def known(self) -> bool:
        """Whether it was seen less than a minute ago."""
        return self._seen_ms > 0 and _monotonic_ms() - self._seen_ms <= COUNTS_MS

    def see(self, server_ms: int) -> None:
        """This is the server's time now, in epoch ms."""
        self._seen_ms, self._server_ms = _monotonic_ms(), server_ms

    def now_ms(self) -> int:
        """The server's time, in epoch ms."""
        return self._server_ms + _monotonic_ms() - self._seen_ms


def epoch_ms(reply: Sequence[Any]) -> int:
    """The reply to TIME."""
    return int(reply[0]) * 1000 + int(reply[1]) // 1000


def _monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000
