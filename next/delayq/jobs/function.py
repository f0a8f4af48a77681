"""`@job`: a function becomes a job. `@handles`: the methods of a class become string jobs.

@job("order.close", queue="orders", tries=3)
def close_order(order_id: int) -> None: ...

close_order(42)                                          calls it, as before
close_order.job(order_id=42).dispatch(delay="15m")       sends it

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
"""Methods of a Dispatch that a function lacks; then those by which Celery, Dramatiq, RQ and Procrastinate send."""


class JobFunction(Generic[P, R]):
    """A function that is a job. It can be called as before; `job` makes a job of it that can be sent."""

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
                message += f". Make a job with its arguments, and send that: {function}.job(…).dispatch()"
            raise AttributeError(message, name=name, obj=self)

    def job(self, *args: P.args, **kwargs: P.kwargs) -> Dispatch:
        """Make a job with these arguments: `close_order.job(order_id=42).delay("15m").dispatch()`.

        Raises TypeError as a call of the function does.
        """
        return self._job(*args, **kwargs)

    def cancel(self, job_id: str, *, running: bool = False) -> Answer:
        """Cancel a job of this function, in the queue that it declares; see DelayQ.cancel. Raises FoundElsewhere."""
        return by_id.cancel_job(self._handler.name, self._handler.options, job_id, running=running)

    async def acancel(self, job_id: str, *, running: bool = False) -> Answer:
        """Cancel a job of this function, awaited; see `cancel`."""
        return await by_id.acancel_job(self._handler.name, self._handler.options, job_id, running=running)

    def find(self, job_id: str) -> JobInfo | None:
        """Return what is known about a job of this function; None for an unknown id. Raises FoundElsewhere."""
        return by_id.find_job(self._handler.name, self._handler.options, job_id)

    async def afind(self, job_id: str) -> JobInfo | None:
        """Find a job of this function, awaited; see `find`."""
        return await by_id.afind_job(self._handler.name, self._handler.options, job_id)

    def _job(self, *args: Any, **kwargs: Any) -> Dispatch:
        handler = self._handler
        signature = inspect.signature(self._function)
        others = [one for one in signature.parameters.values() if one.name != handler.context_name]
        arguments = signature.replace(parameters=others).bind(*args, **kwargs).arguments
        return Dispatch(Message(handler.name, partial(handler.payload.write, arguments), handler.options), {})


class ContextFunction(JobFunction[Concatenate[JobContext, P], R], Generic[P, R]):
    """A function whose first parameter is the context, as type checkers see it: a job is made without it."""

    def job(self, *args: P.args, **kwargs: P.kwargs) -> Dispatch:  # type: ignore[override]
        """Make a job with these arguments; see JobFunction.job."""
        return self._job(*args, **kwargs)


class _Declare(Protocol):
    """The result of `job(...)`. When the context is the first parameter, `.job` does not ask for it."""

    @overload
    def __call__(self, function: Callable[Concatenate[JobContext, P], R], /) -> ContextFunction[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> JobFunction[P, R]: ...


def job(name: str, *, registry: Registry = registry, **declared: Unpack[Declared]) -> _Declare:
    """Make the decorated function, sync or async, the handler of the jobs called `name`.

    The members of the payload are its keyword arguments; a parameter annotated with JobContext takes the context. The
    options are those of JobOptions. Raises InvalidInput for an option or a parameter that cannot be used, and TypeError
    for `@job` without a name.
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
    """Let the public methods of the decorated class run string jobs: `name@method`; `name` alone means `name@fire`.

    A method is called with the context and the payload, on a new object; to return is to be done. `failed(data, error)`
    is called when a job has failed for good. Only classes that are registered here are looked at: a name in a payload
    is never an import path. Raises InvalidInput.
    """
    if "@" in name:
        raise InvalidInput(
            f"{name!r} cannot name a class of string jobs.", hint="Leave out the @ and what follows.", field="name"
        )
    options = JobOptions().over(declared, job_name=check_job_name(name))

    def declare(kind: KindT) -> KindT:
        registry.add_class(name, kind, options)
        return kind

    return declare
