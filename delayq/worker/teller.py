"""Tells listeners what happens. A listener that fails must not end a worker, nor change what becomes of a job."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from delayq.core.events import Event, Listener

log = logging.getLogger("delayq.worker")


class Teller:
    """Calls every listener; false when there is none, so that nobody builds events for nothing."""

    def __init__(self, listeners: Sequence[Listener] = ()) -> None:
        self._listeners = tuple(listeners)

    def __bool__(self) -> bool:
        return bool(self._listeners)

    def __call__(self, event: Event) -> None:
        for listener in self._listeners:
            try:
                listener(event)
            except Exception:
                log.exception("a listener failed on %s", type(event).__name__)
