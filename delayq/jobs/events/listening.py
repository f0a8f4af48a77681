"""How listeners are declared.

@dataclass(frozen=True)
class OrderPaid:
    order_id: int

@listener(OrderPaid)                                        at once, where the event is announced
def count(event: OrderPaid) -> None: ...

@queued_listener(OrderPaid, queue="mail", delay="5m", tries=3)          as a job of its own for each event
def send_receipt(event: OrderPaid) -> None: ...

@queued_listener(OrderPaid)                                 the same as a class, with all that a Job can
class SendReceipt(Job, queue="mail", tries=3):
    event: OrderPaid
    def handle(self) -> None: ...
    def failed(self, error: BaseException) -> None: ...

announce(OrderPaid(order_id=42))
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar, Unpack

from delayq.core.errors import ConfigError
from delayq.jobs.declaring import fields_of
from delayq.jobs.dispatch import Dispatch
from delayq.jobs.function import JobFunction, job
from delayq.jobs.job import Job
from delayq.jobs.options import Declared, Dispatched
from delayq.jobs.registry import current

E = TypeVar("E")
L = TypeVar("L", bound=Callable[..., Any])


def listener(kind: type[E], *, after_commit: bool = False) -> Callable[[Callable[[E], Any]], Callable[[E], Any]]:
    """Call the function with every event of that kind, in the process and thread where it happens.

    `after_commit`: when the database transaction commits in which the event was announced, and never if it is rolled
    back; at once when none is open. Also delayq's own events: `JobStarted`, `JobEnded` and others. What it raises is
    logged, and changes nothing.
    """

    def register(function: Callable[[E], Any]) -> Callable[[E], Any]:
        current().events.listen(kind, function, after_commit=after_commit)
        return function

    return register


def queued_listener(
    kind: type[E],
    *,
    name: str = "",
    when: Callable[[E], bool] | None = None,
    dispatch: Callable[[E], Dispatched] | None = None,
    **declared: Unpack[Declared],
) -> Callable[[L], L]:
    """Dispatch a job for every event of that kind that is announced.

    A function gets the event as its one argument (and the `JobContext`, if it has a parameter for it); `name` is that
    of its jobs, without it the names of event and function. A `Job` class gets it in its one field and declares its
    options itself. `when` says whether an event is of interest, `dispatch` what one event changes: queue, delay, any
    option of a dispatch. Both are asked where the event is announced.
    """

    def register(target: L) -> L:
        if inspect.isclass(target) and issubclass(target, Job):
            if name or declared:
                raise ConfigError(
                    f"The listener {target.__qualname__} is a class; its options stand in its own line.",
                    hint=f"Write class {target.__qualname__}(Job, queue=...).",
                )
            make: Callable[[E], Dispatch] = partial(_of_class, target, _field_of(target))
        else:
            function: Any = job(name or f"{kind.__qualname__.rpartition('.')[2]}.{target.__name__}", **declared)(target)
            make = partial(_of_function, function)
        current().events.queue(kind, partial(_queue, make, when, dispatch))
        return target

    return register


def _queue(
    make: Callable[[E], Dispatch],
    when: Callable[[E], bool] | None,
    dispatch: Callable[[E], Dispatched] | None,
    event: E,
) -> Dispatch | None:
    if when is not None and not when(event):
        return None
    made = make(event)
    return made if dispatch is None else made.having(**dispatch(event))


def _of_function(function: JobFunction[..., Any], event: Any) -> Dispatch:
    return function.job(event)


def _of_class(kind: Any, field: str, event: Any) -> Dispatch:
    made: Job = kind(**{field: event})
    return made._dispatch()


def _field_of(kind: type[Job]) -> str:
    """The one field that takes the event."""
    names = [field.name for field in fields_of(kind)]
    if len(names) != 1:
        raise ConfigError(
            f"The listener {kind.__qualname__} has the fields {', '.join(names) or 'none'}.",
            hint="It needs exactly one, which takes the event.",
        )
    return names[0]
