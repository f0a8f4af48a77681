"""Logs repeated errors: the first one, then at most one every 5 s with the count, and the end of the error."""

import logging
import time
from collections.abc import Callable
from typing import Final

from delayq.core.errors import DelayqError, LoginRefused, OutcomeUnknown

logger: Final = logging.getLogger("delayq")

EVERY: Final = 5.0
"""Shortest time between two log lines about the same error, in seconds."""

LOGIN_PATIENCE: Final = 60.0
"""A process whose login is refused exits after this many seconds, so that its process manager starts it with the new
password."""

LOGIN_GAP: Final = 10.0
"""After this many seconds without a refused login, the time of LOGIN_PATIENCE begins anew. A refused login is tried
again after a second or two.
"""


class Outages:
    """Remembers errors that have not ended yet. Each error is identified by a text such as "queue w failed".

    Several parts of a process can share one object, so that an error which all of them meet is logged once. Such a part
    gives itself as `source`. The error has ended when each part that reported the error has called `is_over`.

    Refused logins are logged once, whatever fails because of them, and not again every 5 s.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: dict[str, tuple[float, int]] = {}
        self._sources: dict[str, set[object]] = {}
        self._refused: set[str] = set()

    def tell(self, what: str, error: Exception, *, plan: str = "", source: object = None) -> None:
        """Log `what`, `plan` and the text of `error`, unless `what` was logged less than 5 s ago.

        `plan`: the next step of the process, such as "; next try in 1 s".
        An error that is not a DelayqError is unexpected, so its traceback is logged too.
        """
        if isinstance(error, LoginRefused):
            if not self._refused:
                logger.error("%s", error)
            self._refused.add(what)
            return
        now = self._clock()
        self._sources.setdefault(what, set()).add(source)
        told_at, count = self._since.get(what, (0.0, 0))
        count += 1
        if told_at and now - told_at < EVERY:
            self._since[what] = (told_at, count)
            return
        self._since[what] = (now, count)
        times = f" ({count} times)" if count > 1 else ""
        trace = None if isinstance(error, DelayqError) else error
        text = error.message if isinstance(error, OutcomeUnknown) else error  # its hint is for callers of the client
        logger.error("%s%s%s: %s", what, plan, times, text, exc_info=trace)

    def is_known(self, what: str) -> bool:
        """Return True if an error was logged and has not ended. Refused logins do not count."""
        return what in self._since

    def is_over(self, what: str, *, source: object = None) -> None:
        """Record that an error has ended for one source. Log the end if it has ended for all sources."""
        sources = self._sources.get(what)
        if sources is not None:
            sources.discard(source)
            if not sources:
                del self._sources[what], self._since[what]
                logger.info("this error has ended: %s", what)
        if self._refused:
            self._refused.discard(what)
            if not self._refused:
                logger.info("calls to Redis succeed again after a refused login")


class RefusedLogins:
    """Measures for how long the server has refused the login of a process.

    If no login was refused for LOGIN_GAP seconds, the server accepted the login in this time, the process made no call,
    or its calls failed for another reason. The time then counts from the next refused login.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: float | None = None
        self._last = 0.0

    def refused(self) -> bool:
        """Record a refused login. Return True if logins have been refused for LOGIN_PATIENCE seconds."""
        now = self._clock()
        if self._since is None or now - self._last > LOGIN_GAP:
            self._since = now
        self._last = now
        return now - self._since >= LOGIN_PATIENCE

    def accepted(self) -> None:
        """Record a successful call."""
        self._since = None
