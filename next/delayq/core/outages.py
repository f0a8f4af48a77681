"""Logs repeated errors: the first one, then one every 5 s with the count, and the recovery."""

import logging
import time
from collections.abc import Callable
from typing import Final

from delayq.core.errors import DelayqError

logger: Final = logging.getLogger("delayq")

EVERY: Final = 5.0


class Outages:
    """Remembers errors that have not ended yet. Each error is identified by a text such as "queue w failed"."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: dict[str, tuple[float, int]] = {}

    def tell(self, what: str, error: Exception) -> None:
        """Log `what` and the text of `error`, unless `what` was logged less than 5 s ago.

        An error that is not a DelayqError is unexpected, so its traceback is logged too.
        """
        now = self._clock()
        told_at, count = self._since.get(what, (0.0, 0))
        count += 1
        if told_at and now - told_at < EVERY:
            self._since[what] = (told_at, count)
            return
        self._since[what] = (now, count)
        times = f" ({count} times)" if count > 1 else ""
        trace = None if isinstance(error, DelayqError) else error
        logger.error("%s%s: %s", what, times, error, exc_info=trace)

    def is_over(self, what: str) -> None:
        """Log that an error has ended, if `what` was logged before."""
        if self._since and self._since.pop(what, None) is not None:
            logger.info("this error has ended: %s", what)
