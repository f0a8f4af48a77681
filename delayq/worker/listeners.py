"""Tells listeners what happens to jobs, and keeps the worker from what they do."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from delayq.core.events import Event, Listener
from delayq.loops.troubles import Troubles

log = logging.getLogger("delayq.worker")


class Listeners:
    """Calls each listener in turn. One that raises is logged with its traceback and changes nothing.

    `hear_all`: somebody wants to hear of jobs that start, and of those that end well. A listener with a true attribute
    `only_trouble` does not; it is asked once, here.
    """

    def __init__(self, listeners: Sequence[Listener] = ()) -> None:
        self._listeners = tuple(listeners)
        self.hear_all = not all(getattr(listener, "only_trouble", False) for listener in self._listeners)
        self._troubles = Troubles(log)

    def __bool__(self) -> bool:
        """Whether anybody listens: events nobody hears need not be made."""
        return bool(self._listeners)

    def tell(self, event: Event) -> None:
        """Tell everybody."""
        for listener in self._listeners:
            try:
                listener(event)
            except Exception as error:  # noqa: BLE001  (a listener is a stranger; nothing may depend on it)
                self._troubles.tell(error, f"a listener failed on {type(event).__name__}")
