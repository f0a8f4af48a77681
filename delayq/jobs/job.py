"""`Job`: a class whose fields are the payload and whose `handle` does the work.

    class CloseOrder(Job, name="order.close", queue="orders", tries=3, backoff=["10s", "1m"], timeout="30s"):
        order_id: int

        def handle(self, context: JobContext) -> None: ...      # or async def; the context is optional
        def failed(self, error: BaseException) -> None: ...     # on a fresh instance, when it has failed for good

    CloseOrder(order_id=42).dispatch(delay="15m")

A class becomes a dataclass (fields by keyword) and the handler of its name. One without `handle` is a base for others:
its fields and options are inherited.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, ClassVar, Unpack, dataclass_transform

from delayq.core.errors import DelayqError
from delayq.core.signals import Discard, Fail, JobSignal, Retry
from delayq.core.states import Answer
from delayq.core.views import JobInfo
from delayq.jobs.by_id import place_of
from delayq.jobs.class_handler import ClassHandler
from delayq.jobs.context import JobContext
from delayq.jobs.declaring import prepare_class
from delayq.jobs.dispatch import Dispatch, Sendable
from delayq.jobs.message import Message
from delayq.jobs.middleware.forms import Middleware
from delayq.jobs.options import ClassOptions, HandlerOptions, declare
from delayq.jobs.registry import current


@dataclass_transform(kw_only_default=True, field_specifiers=(dataclasses.field,))
class Job(Sendable):
    """Base of job classes. Its keywords are the options: see `ClassOptions` and `HandlerOptions`."""

    job_name: ClassVar[str] = ""
    job_options: ClassVar[HandlerOptions] = HandlerOptions()
    _handler: ClassVar[ClassHandler | None] = None
    _asks: ClassVar[Any] = None
    """While it is handled: gives the context."""
    _verdict: ClassVar[JobSignal | None] = None

    def __init_subclass__(cls, **options: Unpack[ClassOptions]) -> None:
        super().__init_subclass__()
        cls.job_name = options.pop("name", cls.__name__)
        cls.job_options = declare(cls.job_name, cls.job_options, options)
        prepare_class(cls, Job)
        cls._handler = None
        if callable(getattr(cls, "handle", None)):
            cls._handler = ClassHandler(cls, current().codecs)
            current().add(cls._handler)

    # -- jobs of this class, by id -----------------------------------------------------------------------------------

    @classmethod
    def cancel(cls, job_id: str, *, running: bool = False) -> Answer:
        """Make sure a job of this class does not run; asked in the queue that its declaration, or a route, names.

        Returns `cancelled`, or why not: `running`, `finished`, `failed`, `unknown`. With `running=True` a job that runs
        is asked to stop. Raises `FoundElsewhere` when another queue has a job with this id, for example one that was
        sent with `on_queue`; nothing is done to that (on Redis; other backends look in the one queue). Raises
        `BackendError`; `InvalidInput` when the connection cannot do this; `ConfigError` when it keeps no jobs.
        """
        return place_of(cls.job_name, cls.job_options, cls.__mro__).cancel(job_id, running)

    @classmethod
    async def acancel(cls, job_id: str, *, running: bool = False) -> Answer:
        """Make sure a job of this class does not run, awaited. Takes, returns and raises what `cancel` does."""
        return await place_of(cls.job_name, cls.job_options, cls.__mro__).acancel(job_id, running)

    @classmethod
    def find(cls, job_id: str) -> JobInfo | None:
        """Everything known about a job of this class; None when no queue has it. Raises as `cancel`."""
        return place_of(cls.job_name, cls.job_options, cls.__mro__).find(job_id)

    @classmethod
    async def afind(cls, job_id: str) -> JobInfo | None:
        """Everything known about a job of this class, awaited. Returns and raises what `find` does."""
        return await place_of(cls.job_name, cls.job_options, cls.__mro__).afind(job_id)

    # -- what a job class may define ---------------------------------------------------------------------------------

    def failed(self, error: BaseException) -> Awaitable[None] | None:
        """Called when the job has failed for good, with the error it failed with; on a fresh instance."""
        return None

    def prepare_for_dispatch(self) -> bool | None:
        """Called first when the job is dispatched. False: do not; the answer then says `vetoed`."""
        return None

    def middleware(self) -> Sequence[Middleware]:
        """What this job in particular is to be surrounded by, inside of what its class declares; outermost first."""
        return ()

    # -- what `handle` may call --------------------------------------------------------------------------------------

    @property
    def context(self) -> JobContext:
        """What is known of the delivery that is being handled. Raises `DelayqError` elsewhere."""
        if self._asks is None:
            raise DelayqError(f"The job {self.job_name!r} is not being handled, so it has no context.")
        context: JobContext = self._asks()
        return context

    def attempts(self) -> int:
        """Which attempt this is, from 1; also 1 where the job is not being handled."""
        return 1 if self._asks is None else self.context.attempt

    def release(self, delay: str | timedelta | None = None) -> None:
        """Let the job be tried again, after `delay` or its backoff; costs an attempt. `handle` runs on to its end.

        It says what should happen when `handle` returns; what it raises after all goes before it.
        """
        self._say(Retry(delay))

    def fail(self, error: str | BaseException = "failed by its handler") -> None:
        """Let the job fail for good when `handle` is over, whatever else it does."""
        self._say(Fail(error))

    def delete(self) -> None:
        """Let the job be forgotten when `handle` is over, whatever else it does."""
        self._say(Discard())

    def _say(self, verdict: JobSignal) -> None:
        """The last word counts, but nothing takes back a `fail` or a `delete`."""
        if self._verdict is None or isinstance(self._verdict, Retry):
            vars(self)["_verdict"] = verdict

    # -- how it travels ----------------------------------------------------------------------------------------------

    def _dispatch(self) -> Dispatch:
        handler = self._handler
        if handler is None:
            raise DelayqError(f"{type(self).__qualname__} has no handle, so nobody could run it.")
        return Dispatch(
            Message(
                name=self.job_name,
                data=partial(handler.write, self),
                options=self.job_options,
                kinds=type(self).__mro__,
                subject=self,
                veto=lambda: self.prepare_for_dispatch() is False,
            )
        )
