"""Calls that were written, and whose answers are read later: the server works on them meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from delayq.core.errors import DelayqError, OutcomeUnknown
from delayq.redis.calls.call import Call
from delayq.redis.direct import OneServer
from delayq.redis.send import post_all
from delayq.redis.translate import translate, translated


class Posted:
    """Calls under way on a connection that nobody else may use until `answers` was called."""

    def __init__(self, client: OneServer, calls: Sequence[Call[Any]], where: str) -> None:
        self._count = len(calls)
        self._where = where
        self._lock = threading.Lock()
        self._hear: Callable[[], list[Any]] = list
        self._found: Sequence[Any] | None = None
        try:
            with translated(where):
                self._hear = post_all(client, calls)
        except DelayqError as error:
            self._found = self._all(error)

    def answers(self) -> Sequence[Any]:
        """Theirs, with an error in the place of each that failed or is lost. From any thread; only the first waits."""
        with self._lock:
            if self._found is None:
                # For who asks after somebody was torn out of the wait: nobody can read them then.
                self._found = self._all(OutcomeUnknown("The wait for its answer was broken off."))
                try:
                    with translated(self._where):
                        self._found = [self._known(reply) for reply in self._hear()]
                except DelayqError as error:
                    self._found = self._all(error)
            return self._found

    def _known(self, reply: Any) -> Any:
        plain = not isinstance(reply, Exception) or isinstance(reply, DelayqError)
        return reply if plain else translate(reply, where=self._where)

    def _all(self, error: DelayqError) -> Sequence[Any]:
        return [error] * self._count
