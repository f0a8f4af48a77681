"""Listeners: functions of the application that are called for events in this process.

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
    """Call the decorated function with each event of this class that occurs in this process.

    Exceptions of a listener are logged, and never change the outcome of a job.

        @listener(WorkerStopping)
        def flush(event: WorkerStopping) -> None: ...
    """

    def register(function: Callable[[E], None]) -> Callable[[E], None]:
        _listeners.setdefault(kind, []).append(function)
        return function

    return register


def emit(event: object) -> None:
    """Call the listeners of an event.

    Exceptions of listeners are logged, so that they never change the outcome of a job.
    """
    for function in _listeners.get(type(event), ()):
        try:
            function(event)
        except Exception:
            logger.exception("a listener of %s failed", type(event).__name__)
