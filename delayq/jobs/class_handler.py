"""Runs the jobs of a class: payload to instance, instance to `handle`, what it said to what the worker hears."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, get_type_hints

import msgspec

from delayq.core.errors import ConfigError
from delayq.core.interrupts import JobInterrupted
from delayq.core.names import check_job_name
from delayq.core.signals import JobSignal, Retry
from delayq.jobs.binding import is_context, refuse_generators
from delayq.jobs.codecs import Codecs
from delayq.jobs.context import JobContext
from delayq.jobs.declaring import fields_of, hints_of
from delayq.jobs.opened import Opened
from delayq.jobs.options import HandlerOptions
from delayq.jobs.payload import Field, Payload, same

if TYPE_CHECKING:
    from delayq.jobs.job import Job


class ClassHandler:
    """The `Handler` of a `Job` class. `context` is built only if `handle` has a parameter for it, or asks."""

    def __init__(self, kind: type[Job], codecs: Codecs) -> None:
        self.kind = kind
        self.name = check_job_name(kind.job_name)
        self._codecs = codecs
        handle: Any = vars(kind).get("handle", getattr(kind, "handle", None))
        refuse_generators(self.name, handle)
        self.is_async = inspect.iscoroutinefunction(handle)
        self.hears_failures = _defined(kind, "failed")
        self.brings_middleware = _defined(kind, "middleware")
        self.place = f"{kind.__module__}.{kind.__qualname__}"
        self._takes_context = _takes_context(self.name, handle)
        with suppress(NameError):  # it names a type that is defined further down; looked at again when first used
            _ = self._payload

    def __repr__(self) -> str:
        return f"<job {self.name!r}: {self.place}>"

    @property
    def options(self) -> HandlerOptions:
        """What the class declares."""
        return self.kind.job_options

    @property
    def payload(self) -> Payload:
        """The fields."""
        return self._known()

    @cached_property
    def _payload(self) -> Payload:
        """By their annotations."""
        hints = hints_of(self.kind)
        return Payload(self.name, [_field(field, hints[field.name]) for field in fields_of(self.kind)], self._codecs)

    def write(self, job: Job) -> msgspec.Raw:
        """The payload of an instance."""
        return self._known().write({field.name: getattr(job, field.name) for field in self._known().fields})

    def make(self, data: msgspec.Raw) -> Job:
        """A fresh instance from a payload."""
        return self.kind(**self._known().read(data))

    def run(self, data: msgspec.Raw, context: Callable[[], JobContext]) -> Any:
        """Make the instance, call its `handle`, and raise what it said with `release`, `fail` or `delete`."""
        job: Any = self.make(data)
        vars(job)["_asks"] = context
        return self._call(job, context)

    def open(self, data: msgspec.Raw, context: Callable[[], JobContext]) -> Opened:
        """Make the instance; its `handle` is called later."""
        job: Any = self.make(data)
        vars(job)["_asks"] = context
        fields = {field.name: getattr(job, field.name) for field in self._known().fields}
        return Opened(fields, partial(self._call, job, context), job, job.middleware)

    def _call(self, job: Any, context: Callable[[], JobContext]) -> Any:
        if self.is_async:
            return self._awaited(job, job.handle(context()) if self._takes_context else job.handle())
        try:
            result = job.handle(context()) if self._takes_context else job.handle()
        except (Exception, JobInterrupted) as error:
            _overrule(job, error)
            raise
        if result is not None and inspect.isawaitable(result):
            return self._awaited(job, result)
        if job._verdict is not None:
            raise job._verdict
        return result

    def failed(self, data: msgspec.Raw, error: BaseException) -> Any:
        """Call the hook of a fresh instance."""
        return self.make(data).failed(error)

    async def _awaited(self, job: Any, running: Awaitable[Any]) -> Any:
        try:
            result = await running
        except (Exception, JobInterrupted) as error:
            _overrule(job, error)
            raise
        if job._verdict is not None:
            raise job._verdict
        return result

    def _known(self) -> Payload:
        try:
            return self._payload
        except NameError as error:
            raise ConfigError(
                f"The job {self.name!r} has an annotation that cannot be found: {error}.",
                hint="It is read at run time: import its type at the top of the module, not under TYPE_CHECKING.",
            ) from error


def _overrule(job: Any, error: BaseException) -> None:
    """An error goes before a `release`; nothing goes before a `fail` or a `delete` but the end of the memory."""
    verdict: JobSignal | None = job._verdict
    if verdict is not None and not isinstance(verdict, Retry) and not isinstance(error, MemoryError):
        raise verdict from error


def _field(field: dataclasses.Field[Any], kind: Any) -> Field:
    if field.default_factory is not dataclasses.MISSING:
        return Field(field.name, kind, field.default_factory)
    return Field(field.name, kind, None if field.default is dataclasses.MISSING else same(field.default))


def _defined(kind: type[Job], hook: str) -> bool:
    base = next(one for one in kind.__mro__ if one.__name__ == "Job" and one.__module__ == "delayq.jobs.job")
    return getattr(kind, hook) is not getattr(base, hook)


def _takes_context(name: str, handle: Callable[..., Any]) -> bool:
    """Whether `handle` has a parameter for the context; any other parameter nobody could fill."""
    parameters = list(inspect.signature(handle).parameters.values())[1:]
    if not parameters:
        return False
    try:
        kind = get_type_hints(handle).get(parameters[0].name, JobContext)
    except NameError:  # it says a name under TYPE_CHECKING; there is nothing else it could be
        kind = JobContext
    if len(parameters) > 1 or not is_context(kind):
        raise ConfigError(
            f"The handle of the job {name!r} takes {', '.join(one.name for one in parameters)}.",
            hint="It may take one parameter, the context; everything else is a field.",
        )
    return True
