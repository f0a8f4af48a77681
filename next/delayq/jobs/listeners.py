"""Listeners: functions that are called when something happens in this process.

@listener(WorkerStopping)
def flush(event: WorkerStopping) -> None: ...
"""

import logging
from collections.abc import Callable
from typing import Any, Final, TypeVar

E = TypeVar("E")

logger: Final = logging.getLogger("delayq")

_listeners: Final[dict[type[Any], list[Callable[[Any], object]]]] = {}


def listener(kind: type[E]) -> Callable[[Callable[[E], None]], Callable[[E], None]]:
    """Call the decorated function with each event of this kind."""

    def register(function: Callable[[E], None]) -> Callable[[E], None]:
        _listeners.setdefault(kind, []).append(function)
        return function

    return register


def emit(event: object) -> None:
    """Call the listeners of an event. What a listener raises is logged: it never decides what becomes of a job."""
    for function in _listeners.get(type(event), ()):
        try:
            function(event)
        except Exception:
            logger.exception("a listener of %s failed", type(event).__name__)
