"""`@job` turns a function into a job. `@handles` turns the methods of a class into jobs with names like `Mailer@send`.

@job("order.close", queue="orders", tries=3)
def close_order(order_id: int) -> None: ...

close_order(42)                                          calls the function, as before
close_order.job(order_id=42).dispatch(delay="15m")       dispatches a job

@handles("Mailer")
class Mailer:
    def send(self, context: JobContext, data: dict[str, Any]) -> None: ...

dispatch("Mailer@send", {"to": "ann@example.org"})
"""

import inspect
from collections.abc import Callable
from functools import partial, update_wrapper
from typing import TYPE_CHECKING, Any, Concatenate, Final, Generic, ParamSpec, Protocol, TypeVar, Unpack, cast, overload

from delayq.core.errors import InvalidInput
from delayq.core.names import check_job_name
from delayq.core.states import Answer
from delayq.core.views import JobInfo
from delayq.jobs import by_id
from delayq.jobs.context import JobContext
from delayq.jobs.dispatch import Dispatch, Message
from delayq.jobs.handlers import FunctionHandler
from delayq.jobs.options import Declared, JobOptions
from delayq.jobs.registry import Registry, registry

P = ParamSpec("P")
R = TypeVar("R")
KindT = TypeVar("KindT", bound=type)

_ELSEWHERE: Final = frozenset(
    (
        *("dispatch", "adispatch", "dispatch_sync", "adispatch_sync", "on_connection", "on_queue", "without_delay"),
        *("with_headers", "tags", "delay", "apply_async", "send", "send_with_options", "enqueue", "defer", "s"),
    )
)
"""Methods that users may expect on a job function: methods of Dispatch, then methods of Celery, Dramatiq, RQ and
Procrastinate."""


class JobFunction(Generic[P, R]):
    """A function with the decorator `@job`. It can be called as before; `job` returns a job to dispatch."""

    def __init__(self, function: Callable[P, R], handler: FunctionHandler) -> None:
        update_wrapper(self, function)
        self._function = function
        self._handler = handler

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function."""
        return self._function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<job {self._handler.name!r}: {self._handler.origin}>"

    if not TYPE_CHECKING:  # a type checker would believe that every attribute exists

        def __getattr__(self, name: str) -> Any:
            message = f"{type(self).__name__!r} object has no attribute {name!r}"
            if name in _ELSEWHERE:
                function = self.__dict__.get("__name__", "function")
                message += f". First make a job with the arguments, then dispatch it: {function}.job(…).dispatch()"
            raise AttributeError(message, name=name, obj=self)

    def job(self, *args: P.args, **kwargs: P.kwargs) -> Dispatch:
        """Return a job with these arguments, to dispatch: `close_order.job(order_id=42).delay("15m").dispatch()`.

        Raises TypeError if the arguments do not fit the function.
        """
        return self._job(*args, **kwargs)

    def cancel(self, job_id: str, *, running: bool = False) -> Answer:
        """Cancel a job of this function by its id, in the queue of the function: declared, of a route, or the default.

        The answers and errors are those of DelayQ.cancel. Raises FoundElsewhere, and changes nothing, if this queue
        does not have the id, and another queue has or may have it.
        """
        return by_id.cancel_job(self._handler.name, self._handler.options, job_id, running=running)

    async def acancel(self, job_id: str, *, running: bool = False) -> Answer:
        """Cancel a job of this function in an event loop; see `cancel`."""
        return await by_id.acancel_job(self._handler.name, self._handler.options, job_id, running=running)

    def find(self, job_id: str) -> JobInfo | None:
        """Return all facts about a job of this function, or None for an unknown id.

        Raises FoundElsewhere if the queue of the function does not have the id, and another queue has or may have it.
        """
        return by_id.find_job(self._handler.name, self._handler.options, job_id)

    async def afind(self, job_id: str) -> JobInfo | None:
        """Find a job of this function in an event loop; see `find`."""
        return await by_id.afind_job(self._handler.name, self._handler.options, job_id)

    def _job(self, *args: Any, **kwargs: Any) -> Dispatch:
        handler = self._handler
        signature = inspect.signature(self._function)
        others = [one for one in signature.parameters.values() if one.name != handler.context_name]
        arguments = signature.replace(parameters=others).bind(*args, **kwargs).arguments
        return Dispatch(Message(handler.name, partial(handler.payload.write, arguments), handler.options), {})


class ContextFunction(JobFunction[Concatenate[JobContext, P], R], Generic[P, R]):
    """A job function whose first parameter is the context. For type checkers, its method `job` omits the context."""

    def job(self, *args: P.args, **kwargs: P.kwargs) -> Dispatch:  # type: ignore[override]
        """Return a job with these arguments; see JobFunction.job."""
        return self._job(*args, **kwargs)


class _Declare(Protocol):
    """The type of the decorator `@job(...)`. If the first parameter of a function is the context, `.job` omits it."""

    @overload
    def __call__(self, function: Callable[Concatenate[JobContext, P], R], /) -> ContextFunction[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> JobFunction[P, R]: ...


def job(name: str, *, registry: Registry = registry, **declared: Unpack[Declared]) -> _Declare:
    """Make the decorated function, sync or async, the handler of the jobs with this name.

    The payload is passed as keyword arguments. A parameter with the annotation JobContext receives the context. The
    keywords declare options for all jobs of this name: `queue`, `connection`, `delay`, `tries`, `backoff`, `timeout`,
    `on_timeout` ("retry" or "fail"), `deadline`, `retry_until`, `max_exceptions`, `retention`, `tags`, `unique`,
    `encrypted`, `after_commit` (see `delayq.within`), `middleware` (a list of objects with a method `handle(job,
    next)`) and `on_missing` ("fail" or "discard", see OnMissing). JobSpec explains the others. Options of a dispatch
    override declared options.

    Raises InvalidInput for a name, option or parameter that cannot be used, and TypeError for `@job` without a name.

        @job("order.close", queue="orders", tries=3)
        def close_order(order_id: int) -> None: ...

        close_order.job(order_id=42).dispatch(delay="15m")
    """
    if not isinstance(name, str):
        raise TypeError(f'@job needs the name of the job, as in @job("order.close"); it was given {name!r}.')
    options = JobOptions().over(declared, job_name=check_job_name(name))

    def declare(function: Callable[..., Any]) -> JobFunction[..., Any]:
        handler = FunctionHandler(function, name=name, options=options)
        registry.add(handler)
        return JobFunction(function, handler)

    return cast(_Declare, declare)


def handles(name: str, *, registry: Registry = registry, **declared: Unpack[Declared]) -> Callable[[KindT], KindT]:
    """Make the public methods of the decorated class handlers of the jobs `name@method`, as in Laravel.

    The job `name` without a method runs the method `fire`. A method is called on a new object, with the context and the
    payload. The job is done when the method returns. The method `failed(data, error)` is called after a job has failed
    for good. The keywords declare options, as for `job`. Only decorated classes can run: delayq never imports a
    class because its name is in a job. Raises InvalidInput for a name, an option or a method that cannot be used.

        @handles("Mailer")
        class Mailer:
            def send(self, context: JobContext, data: dict[str, Any]) -> None: ...

        dispatch("Mailer@send", {"to": "ann@example.org"})
    """
    if "@" in name:
        raise InvalidInput(
            f"{name!r} is not a valid name for a class with @handles.",
            hint="Leave out the @ and the text after it.",
            field="name",
        )
    options = JobOptions().over(declared, job_name=check_job_name(name))

    def declare(kind: KindT) -> KindT:
        registry.add_class(name, kind, options)
        return kind

    return declare
