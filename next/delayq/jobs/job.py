"""`Job`: the base class of job classes. Their fields are the payload, and `handle` does the work.

class CloseOrder(Job, name="order.close", queue="orders", tries=3, backoff=["10s", "1m"], timeout="30s"):
    order_id: int

    def handle(self, context: JobContext) -> None: ...      # or async def; the context may be left out
    def failed(self, error: BaseException) -> None: ...     # called on a new object after the job has failed

CloseOrder(order_id=42).dispatch(delay="15m")
"""

import dataclasses
import inspect
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Unpack, dataclass_transform, get_type_hints

from delayq.core.control_flow import Discard, Fail, JobSignal, Retry
from delayq.core.errors import DelayqError, InvalidInput
from delayq.core.names import check_job_name
from delayq.core.outcome import Policy
from delayq.core.states import Answer
from delayq.core.times import Duration
from delayq.core.views import JobInfo
from delayq.jobs import by_id
from delayq.jobs.context import JobContext
from delayq.jobs.dispatch import Message, Sendable
from delayq.jobs.handlers import default_of, origin_of, refuse_async, refuse_generator
from delayq.jobs.options import ClassDeclared, JobOptions
from delayq.jobs.payload import Field, Payload
from delayq.jobs.registry import registry

if TYPE_CHECKING:
    from delayq.jobs.middleware import AnyMiddleware


@dataclass_transform(kw_only_default=True, field_specifiers=(dataclasses.field,))
class Job(Sendable):
    """Derive from this class to declare a job. The fields are the payload, and the method `handle` does the work.

    Each class becomes a dataclass whose fields are given by keyword. `handle` may be async, and may have one parameter
    for the JobContext. A class without `handle` is a base class for other jobs, which inherit its fields and options.

    The keywords of the class declare options for its jobs: `name` (default: the name of the class), `queue`,
    `connection`, `delay`, `tries`, `backoff`, `timeout`, `on_timeout` ("retry" or "fail"), `deadline`, `retry_until`,
    `max_exceptions`, `retention`, `tags`, `unique`, `encrypted`, `after_commit` (see `delayq.within`), `middleware` (a
    list of objects with a method `handle(job, next)`) and `on_missing` ("fail" or "discard", see OnMissing). JobSpec
    explains the others. Options of a dispatch override declared options. Raises InvalidInput for an option or field
    that cannot be used.

        class CloseOrder(Job, name="order.close", queue="orders", tries=3, timeout="30s"):
            order_id: int

            def handle(self, context: JobContext) -> None: ...

        CloseOrder(order_id=42).dispatch(delay="15m")
    """

    job_name: ClassVar[str] = ""
    job_options: ClassVar[JobOptions] = JobOptions()
    _handler: ClassVar["ClassHandler | None"] = None
    _context: ClassVar[JobContext | None] = None
    _verdict: ClassVar[JobSignal | None] = None

    def __init_subclass__(cls, **declared: Unpack[ClassDeclared]) -> None:
        super().__init_subclass__()
        cls.job_name = check_job_name(declared.pop("name", cls.__name__))
        cls.job_options = cls.job_options.over(declared, job_name=cls.job_name)
        _refuse_clashes(cls)
        dataclasses.dataclass(kw_only=True)(cls)
        cls._handler = None
        if callable(getattr(cls, "handle", None)):
            cls._handler = ClassHandler(cls)
            registry.add(cls._handler)

    # -- jobs of this class, by id -------------------------------------------------------------------------------------

    @classmethod
    def cancel(cls, job_id: str, *, running: bool = False) -> Answer:
        """Cancel a job of this class by its id, in the queue of the class: declared, of a route, or the default.

        The answers and errors are those of DelayQ.cancel. Raises FoundElsewhere, and changes nothing, if this queue
        does not have the id, and another queue has or may have it.
        """
        return by_id.cancel_job(cls.job_name, cls.job_options, job_id, running=running)

    @classmethod
    async def acancel(cls, job_id: str, *, running: bool = False) -> Answer:
        """Cancel a job of this class in an event loop; see `cancel`."""
        return await by_id.acancel_job(cls.job_name, cls.job_options, job_id, running=running)

    @classmethod
    def find(cls, job_id: str) -> JobInfo | None:
        """Return all facts about a job of this class, or None for an unknown id.

        Raises FoundElsewhere if the queue of the class does not have the id, and another queue has or may have it.
        """
        return by_id.find_job(cls.job_name, cls.job_options, job_id)

    @classmethod
    async def afind(cls, job_id: str) -> JobInfo | None:
        """Find a job of this class in an event loop; see `find`."""
        return await by_id.afind_job(cls.job_name, cls.job_options, job_id)

    # -- methods that a class may override -----------------------------------------------------------------------------

    def failed(self, error: BaseException) -> Awaitable[None] | None:
        """Override this hook to act after the job has failed for good, for example to inform a user.

        The hook is called on a new object with the same fields. `error` is the last error, and `self.context` the
        context of the last attempt. The hook may be async.
        """
        return None

    def prepare_for_dispatch(self) -> bool | None:
        """Override this hook to act before the job is dispatched. Return False to prevent the dispatch.

        The `outcome` of the reference is then "vetoed". After any other return value, the job is sent.
        """
        return None

    def middleware(self) -> "Sequence[AnyMiddleware]":
        """Override this method to return middleware for this job. This middleware runs inside the declared middleware.

        The method is called before each attempt, on the object whose `handle` is called.
        """
        return ()

    # -- methods for `handle` to call ----------------------------------------------------------------------------------

    @property
    def context(self) -> JobContext:
        """The context of the running attempt. Raises DelayqError if the job is not running."""
        if self._context is None:
            raise DelayqError(f"The job {self.job_name!r} is not running, so it has no context.")
        return self._context

    def attempts(self) -> int:
        """Return the number of this attempt, counted from 1, as Laravel's `attempts()` does."""
        return 1 if self._context is None else self._context.attempt

    def release(self, delay: Duration | None = None) -> None:
        """Retry the job after `handle` has returned. A retry costs an attempt.

        `delay` is the wait, such as "5m". Without it, the backoff of the job applies. `raise Retry(delay)` does the
        same at once. Raises InvalidInput for an invalid duration.
        """
        self._decide(Retry(delay))

    def fail(self, error: str | BaseException = "the handler failed the job") -> None:
        """Fail the job for good after `handle` has returned. `raise Fail(error)` does the same at once."""
        self._decide(Fail(error))

    def delete(self) -> None:
        """Delete the job after `handle` has returned. `raise Discard()` does the same at once."""
        self._decide(Discard())

    def _decide(self, signal: JobSignal) -> None:
        """Record a decision (`release`, `fail` or `delete`).

        A later decision replaces a release, but not a failure or a deletion.
        """
        if self._verdict is None or isinstance(self._verdict, Retry):
            vars(self)["_verdict"] = signal

    # -- dispatch ------------------------------------------------------------------------------------------------------

    def _message(self) -> Message:
        handler = self._handler
        if handler is None:
            raise InvalidInput(
                f"{type(self).__qualname__} has no `handle` method, so no worker can run it.", field="name"
            )
        return Message(
            self.job_name,
            partial(handler.write, self),
            self.job_options,
            lambda: self.prepare_for_dispatch() is not False,
        )


class ClassHandler:
    """Runs the jobs of a class: creates an object from the payload and calls its method `handle`."""

    wants_context = True

    def __init__(self, kind: type[Job]) -> None:
        self.name = kind.job_name
        self.options = kind.job_options
        self.origin = origin_of(kind)
        handle: Callable[..., Any] = kind.handle  # type: ignore[attr-defined]
        refuse_generator(handle, unwraps=True)
        refuse_generator(kind.failed)
        refuse_async(kind.prepare_for_dispatch)
        self.is_async = inspect.iscoroutinefunction(handle)
        self.has_failed_hook = kind.failed is not Job.failed
        self.has_middleware = kind.middleware is not Job.middleware
        self._kind = kind
        self._fields = [field.name for field in dataclasses.fields(kind) if field.init]  # type: ignore[arg-type]
        self._payload = Payload(self.name, _fields_of(kind))
        self.model_fields = self._payload.model_fields
        self.payload_members = self._payload.kinds
        self._takes_context = _takes_context(kind, handle)
        self.read = self._payload.read

    def policy(self, standard: Policy) -> Policy:
        """Return `standard`, overridden by the declared values of the class."""
        return self.options.policy(standard)

    def write(self, job: Job) -> Any:
        """Return the payload of a job; raises InvalidInput."""
        return self._payload.write({name: getattr(job, name) for name in self._fields})

    def call(self, job: dict[str, Any], context: JobContext | None) -> Any:
        """Create the job and call its `handle`. If `handle` is async, return a coroutine."""
        made = self.instance(job, context)
        answer = made.handle(context) if self._takes_context else made.handle()  # type: ignore[attr-defined]
        return _awaited(made, answer) if inspect.isawaitable(answer) else _settled(made, answer)

    def call_on(self, instance: Job, job: dict[str, Any], context: JobContext | None) -> Any:
        """Call `handle` of an object of the class. If `handle` is async, return a coroutine."""
        answer = instance.handle(context) if self._takes_context else instance.handle()  # type: ignore[attr-defined]
        return _awaited(instance, answer) if inspect.isawaitable(answer) else _settled(instance, answer)

    def failed(self, job: dict[str, Any], error: BaseException, context: JobContext | None) -> Awaitable[None] | None:
        """Create a new object of the job and call its `failed` hook."""
        return self.instance(job, context).failed(error)

    def instance(self, job: dict[str, Any], context: JobContext | None) -> Job:
        """Create the object of a job."""
        made = self._kind(**job)
        vars(made)["_context"] = context
        return made


async def _awaited(job: Job, answer: Awaitable[Any]) -> Any:
    return _settled(job, await answer)


def _settled(job: Job, result: Any) -> Any:
    """Return the result of `handle`, or raise the decision that `handle` made with `release`, `fail` or `delete`."""
    if job._verdict is not None:
        raise job._verdict
    return result


def _fields_of(kind: type[Job]) -> list[Field]:
    """Return the fields of a class with their types; raises InvalidInput for an annotation that cannot be resolved."""
    try:
        kinds = get_type_hints(kind, include_extras=True)
    except (NameError, TypeError) as error:
        raise InvalidInput(
            f"The annotations of {kind.__qualname__} cannot be read: {error}.",
            hint="Import or declare the types at the top level of the module, outside of `if TYPE_CHECKING`.",
            field="data",
        ) from None
    found = []
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        if field.init:
            factory: Any = None if field.default_factory is dataclasses.MISSING else field.default_factory
            plain = inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default
            found.append(Field(field.name, kinds[field.name], factory or default_of(plain)))
    return found


def _takes_context(kind: type[Job], handle: Callable[..., Any]) -> bool:
    """Return True if `handle` has a parameter for the context. Raises InvalidInput for further parameters."""
    parameters = list(inspect.signature(handle).parameters.values())[1:]
    if len(parameters) > 1:
        raise InvalidInput(
            f"{kind.__qualname__}.handle has {len(parameters)} parameters, but it may have only one, for the context.",
            hint="Declare the values that the job needs as fields of the class.",
            field="data",
        )
    return len(parameters) == 1


def _refuse_clashes(kind: type[Job]) -> None:
    """Refuse an own `__init__`, and fields with the name of a method of Job, because the payload would be lost."""
    if "__init__" in vars(kind):
        raise InvalidInput(
            f"{kind.__qualname__} defines __init__, but only the fields of a job class are sent.",
            hint="Declare fields, such as order_id: int, and remove __init__; __post_init__ may check the fields.",
            field="data",
        )
    for name in inspect.get_annotations(kind):
        if hasattr(Job, name):
            raise InvalidInput(
                f"The field {name!r} of {kind.__qualname__} has the name of a method or attribute of Job.",
                hint=f"Rename it, for example to {name}_.",
                field="data",
            )
