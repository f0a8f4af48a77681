"""Listeners that run as jobs. The job carries the event.

@queued_listener(OrderPlaced, queue="mail", tries=3)
def send_mail(event: OrderPlaced) -> None: ...

emit(OrderPlaced(order_id=42))                           stores a job, which a worker runs
"""

from collections.abc import Callable
from typing import Any, Final, TypeVar, Unpack

from delayq.core.display import shown
from delayq.core.errors import InvalidInput
from delayq.core.events import JobDispatched, JobEnded, JobStarted, WorkerLooping
from delayq.core.listeners import check_event_class, listener, listeners, name_of_listener
from delayq.core.names import check_job_name
from delayq.jobs.function import JobFunction
from delayq.jobs.handlers import FunctionHandler, origin_of
from delayq.jobs.options import Declared, JobOptions
from delayq.jobs.registry import registry

R = TypeVar("R")

_ENDLESS: Final = (JobDispatched, JobStarted, JobEnded, WorkerLooping)
"""Events that the job of a listener or its worker emits again. With such an event, jobs would follow without end."""

_declared: Final[dict[str, tuple[type, Callable[[Any], object]]]] = {}
"""The event class and the listener of each queued listener, by job name."""


def queued_listener(
    kind: type, *, name: str | None = None, **declared: Unpack[Declared]
) -> Callable[[Callable[..., R]], JobFunction[..., R]]:
    """Run the decorated function, sync or async, as a job for each event of this class that occurs in this process.

    The event is the payload of the job, so its class must be one whose objects JSON can carry, such as a dataclass or a
    msgspec Struct. The function has one parameter with this class as its annotation, and may have another one for the
    JobContext. `name` is the name of the job; None = "listener.", the module and the name of the function. The other
    keywords declare options, as for `job`. The job is dispatched in the thread that emits the event. If the job cannot
    be stored, the error is logged, and `emit` returns False.

    Raises InvalidInput for an option, name or function that cannot be used, for a class that JSON cannot carry, and for
    JobDispatched, JobStarted, JobEnded and WorkerLooping, which the jobs of the listener would emit again.

        @queued_listener(OrderPlaced, queue="mail", tries=3)
        def send_mail(event: OrderPlaced) -> None: ...
    """
    check_event_class(kind)
    if kind in _ENDLESS:
        raise InvalidInput(
            f"kind is {kind.__name__}, which the jobs of the listener would emit again, without end.",
            hint="Use @listener, and dispatch a job in it for the few events that need one.",
            field="kind",
        )

    def declare(function: Callable[..., R]) -> JobFunction[..., R]:
        job_name = name or _name_of(function)
        options = JobOptions().over(declared, job_name=check_job_name(job_name))
        handler = FunctionHandler(function, name=job_name, options=options)
        if list(handler.payload.kinds.values()) != [kind]:
            raise InvalidInput(
                f"{origin_of(function)} must have one parameter with the annotation {kind.__name__}.",
                hint=f"An example: def {getattr(function, '__name__', 'mail')}(event: {kind.__name__}) -> None.",
                field="event",
            )
        registry.add(handler)
        made: JobFunction[..., R] = JobFunction(function, handler)

        def dispatch(event: Any) -> object:
            return made.job(event).dispatch()

        # The log line of an error has this name.
        dispatch.__module__, _, dispatch.__qualname__ = name_of_listener(function).partition(".")
        _listen(kind, job_name, dispatch)
        return made

    return declare


def _listen(kind: type, job_name: str, dispatch: Callable[[Any], object]) -> None:
    """Register a listener. Remove the listener of an earlier declaration, so that no event is sent twice."""
    if job_name in _declared:
        known, former = _declared[job_name]
        listeners[known] = [one for one in listeners.get(known, []) if one is not former]
    _declared[job_name] = kind, listener(kind)(dispatch)


def _name_of(function: Callable[..., Any]) -> str:
    name = getattr(function, "__qualname__", "")
    if "<" in name or not name:
        raise InvalidInput(
            f"The listener, {shown(function)}, has no name that other programs know.",
            hint='Declare it at the top level of a module, or name its job: name="listener.mail".',
            field="name",
        )
    return f"listener.{function.__module__}.{name}"
