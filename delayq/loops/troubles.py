"""How loops and workers say what went wrong: loud enough to be seen, limited so that an outage fills no disk."""

from __future__ import annotations

import logging

from delayq.core.errors import AWAY, DelayqError
from delayq.core.failure import in_a_line
from delayq.loops.log_limit import LogLimit


class Troubles:
    """Logs errors to `log`, of one kind and place at most every five seconds, with the number left out.

    A backend that is away is a warning, any other error of delayq's an error, and what nobody expected comes with its
    traceback.
    """

    def __init__(self, log: logging.Logger, limit: LogLimit | None = None) -> None:
        self._log = log
        self._limit = limit or LogLimit()

    def tell(self, error: Exception, place: str = "") -> None:
        """Log `error`; `place` says where ('queue orders')."""
        number = self._limit.may_log(f"{place} {type(error).__name__}")
        if not number:
            return
        level = logging.WARNING if isinstance(error, AWAY) else logging.ERROR
        expected = isinstance(error, DelayqError)
        text = str(error) if expected else f"unexpected {in_a_line(error)}"
        head = f"{place}: " if place else ""
        tail = f" (and {number - 1} more like it)" if number > 1 else ""
        self._log.log(level, "%s%s%s", head, text, tail, exc_info=None if expected else error)
