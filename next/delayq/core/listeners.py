"""Listeners: functions of the application that are called for events in this process.

@listener(WorkerStopping)
def flush(event: WorkerStopping) -> None: ...
"""

import inspect
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

from delayq.core.display import shown
from delayq.core.errors import InvalidInput

E = TypeVar("E")
R = TypeVar("R")

logger: Final = logging.getLogger("delayq")

listeners: Final[dict[type[Any], list[Callable[[Any], object]]]] = {}
"""The listeners by event class. Code that emits an event first checks whether the class of the event is a key."""


def listener(kind: type[E]) -> Callable[[Callable[[E], R]], Callable[[E], R]]:
    """Call the decorated function with each event of this class that occurs in this process.

    `kind` is an event class of delayq, such as WorkerStopping, or a class whose objects the application passes to
    `emit`. The listener runs in the thread that emits the event. Exceptions of a listener are logged, and never change
    the outcome of a job. Raises InvalidInput if `kind` is not a class, and for an async function or a generator
    function.

        @listener(WorkerStopping)
        def flush(event: WorkerStopping) -> None: ...
    """
    check_event_class(kind)

    def register(function: Callable[[E], R]) -> Callable[[E], R]:
        name = repr(name_of_listener(function))
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise InvalidInput(
                f"The listener {name} is a generator function, so calling it would not run its code.",
                hint="Remove `yield` from it.",
                field="listener",
            )
        if inspect.iscoroutinefunction(function):
            raise InvalidInput(
                f"The listener {name} is async.",
                hint="Use a plain function, or the decorator `queued_listener`, which also accepts async functions.",
                field="listener",
            )
        listeners.setdefault(kind, []).append(function)
        return function

    return register


def emit(event: object) -> bool:
    """Call the listeners of an event, which is an object of any class. Use this for events of the application.

    Exceptions of listeners are logged and not raised, so that they never change the outcome of a job. Return False if a
    listener raised an exception or returned False. Only listeners of exactly the class of the event are called.

        @listener(OrderPlaced)
        def count(event: OrderPlaced) -> None: ...

        emit(OrderPlaced(order_id=42))
    """
    is_fine = True
    for function in tuple(listeners.get(type(event), ())):
        try:
            answer = function(event)
            if inspect.iscoroutine(answer) or inspect.isgenerator(answer) or inspect.isasyncgen(answer):
                if not inspect.isasyncgen(answer):
                    answer.close()
                raise TypeError(f"the listener returned {shown(answer)}, whose code did not run")
            if answer is False:
                is_fine = False
        except (Exception, SystemExit):
            logger.exception("the listener %s of %s failed", name_of_listener(function), type(event).__name__)
            is_fine = False
    return is_fine


def name_of_listener(function: Callable[..., object]) -> str:
    """Return the name of a function, also inside a partial. For another object, return the name of its class."""
    inner: Any = function.func if isinstance(function, partial) else function
    named = inner if isinstance(getattr(inner, "__qualname__", None), str) else type(inner)
    return f"{named.__module__}.{named.__qualname__}"


def check_event_class(kind: object) -> None:
    """Raise InvalidInput if `kind` is not a class."""
    if not isinstance(kind, type):
        raise InvalidInput(
            f"The listener is declared for {shown(kind)}, which is not a class.",
            hint="Name the class of the event, as in @listener(JobEnded).",
            field="kind",
        )
