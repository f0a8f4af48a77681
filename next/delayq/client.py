"""The two clients and their references to jobs. DelayQ blocks; AsyncDelayQ is awaited. Both have the same methods."""

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import partial, wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import msgspec

from delayq.backends.protocol import Backend
from delayq.backends.registry import backend_of
from delayq.core.errors import JobHasFailed, JobNotFound
from delayq.core.results import read_result
from delayq.core.states import Answer, State
from delayq.core.times import Duration, Instant
from delayq.core.views import JobInfo
from delayq.redis.connection.leaf import drive
from delayq.redis.operations.operations import Operations
from delayq.settings.connections import Routes
from delayq.settings.model import Settings, load_settings

P = ParamSpec("P")
T = TypeVar("T")


class JobRef(msgspec.Struct, frozen=True, gc=False):
    """A job, as a blocking client answered. `due_ms` is None when the job no longer waits for a time.

    `outcome` says what the call did: created, kept, replaced, postponed, rescheduled, scheduled, ready. When another
    job owns the unique key, `id` is that job's. `name` is '' after calls that do not read the job.
    """

    client: "DelayQ"
    id: str
    queue: str
    state: State
    due_ms: int | None
    outcome: Answer
    name: str = ""

    def __repr__(self) -> str:
        return _shown(self)

    def cancel(self, *, running: bool = False) -> Answer:
        """Cancel the job; see DelayQ.cancel."""
        return self.client.cancel(self.id, queue=self.queue, running=running)

    def reschedule(
        self,
        *,
        delay: Duration | None = None,
        at: Instant | None = None,
        tz: str | None = None,
        fold: int | None = None,
    ) -> "JobRef":
        """Give the job a new due time; see DelayQ.reschedule."""
        return self.client.reschedule(self.id, queue=self.queue, delay=delay, at=at, tz=tz, fold=fold)

    def run_now(self) -> "JobRef":
        """End the wait of the job; see DelayQ.run_now."""
        return self.client.run_now(self.id, queue=self.queue)

    def refresh(self) -> JobInfo | None:
        """Read everything that is known about the job; None when it is done and not kept, or was cancelled."""
        return self.client.get(self.id, queue=self.queue)

    def wait(self, timeout: Duration) -> JobInfo | None:
        """Wait until the job has ended; see DelayQ.wait."""
        return self.client.wait(self.id, queue=self.queue, timeout=timeout)

    def result(self, timeout: Duration = "0s") -> Any:
        """Return what the handler returned. Waits up to `timeout` for the end of the job.

        Raises TimeoutError, JobHasFailed, ResultLost when it could not be kept, and JobNotFound when nothing is kept:
        results need a retention.
        """
        return _result_of(self.wait(timeout), self.id)


class AsyncJobRef(msgspec.Struct, frozen=True, gc=False):
    """A job, as an awaited client answered. Its members are those of JobRef, its methods are awaited."""

    client: "AsyncDelayQ"
    id: str
    queue: str
    state: State
    due_ms: int | None
    outcome: Answer
    name: str = ""

    def __repr__(self) -> str:
        return _shown(self)

    async def cancel(self, *, running: bool = False) -> Answer:
        """Cancel the job; see DelayQ.cancel."""
        return await self.client.cancel(self.id, queue=self.queue, running=running)

    async def reschedule(
        self,
        *,
        delay: Duration | None = None,
        at: Instant | None = None,
        tz: str | None = None,
        fold: int | None = None,
    ) -> "AsyncJobRef":
        """Give the job a new due time; see DelayQ.reschedule."""
        return await self.client.reschedule(self.id, queue=self.queue, delay=delay, at=at, tz=tz, fold=fold)

    async def run_now(self) -> "AsyncJobRef":
        """End the wait of the job; see DelayQ.run_now."""
        return await self.client.run_now(self.id, queue=self.queue)

    async def refresh(self) -> JobInfo | None:
        """Read everything that is known about the job; None when it is done and not kept, or was cancelled."""
        return await self.client.get(self.id, queue=self.queue)

    async def wait(self, timeout: Duration) -> JobInfo | None:
        """Wait until the job has ended; see DelayQ.wait."""
        return await self.client.wait(self.id, queue=self.queue, timeout=timeout)

    async def result(self, timeout: Duration = "0s") -> Any:
        """Return what the handler returned; see JobRef.result."""
        return _result_of(await self.wait(timeout), self.id)


class AsyncDelayQ(Operations[AsyncJobRef]):
    """The client for asyncio. Event loops may share one.

    `url` is redis://, rediss:// or unix://; without one it is that of the settings (docs/settings.md), or else the
    embedded server of the project, which is found or started here. `prefix` and `queue` go before those of the
    settings. Raises ConfigError, and BackendUnavailable for an embedded server that does not start.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        prefix: str | None = None,
        queue: str | None = None,
        settings: Settings | None = None,
    ) -> None:
        settings = settings or load_settings(url=url, prefix=prefix, queue=queue).chosen()
        self._open(backend_of(settings), Routes(settings.routes))

    @classmethod
    def over(cls, backend: Backend, routes: Routes) -> Self:
        """Make a client of a manager, whose connections share their routes."""
        client = cls.__new__(cls)
        client._open(backend, routes)
        return client

    def _open(self, backend: Backend, routes: Routes) -> None:
        super().__init__(backend.session(is_async=True, routes=routes), partial(AsyncJobRef, self))

    def __repr__(self) -> str:
        """Name the server, without secrets."""
        return f"AsyncDelayQ({self._session.executor.where!r}, prefix={self._session.keys.prefix!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def blocking(
    operation: "Callable[Concatenate[Operations[JobRef], P], Coroutine[Any, Any, T]]",
) -> "Blocking[P, T]":
    """Turn an operation into a method of DelayQ. The signature stays; only the `await` goes."""

    @wraps(operation)
    def method(self: "DelayQ", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return drive(operation(self._operations, *args, **kwargs))

    return method


def iterating(
    operation: "Callable[Concatenate[Operations[JobRef], P], AsyncIterator[T]]",
) -> "Callable[Concatenate[DelayQ, P], Iterator[T]]":
    """Turn an operation that yields into a method of DelayQ that does."""

    @wraps(operation)
    def method(self: "DelayQ", /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        values = operation(self._operations, *args, **kwargs)

        async def next_value() -> tuple[bool, T | None]:
            try:
                return True, await anext(values)
            except StopAsyncIteration:
                return False, None

        while True:
            has_value, value = drive(next_value())
            if not has_value:
                return
            yield value  # type: ignore[misc]

    return method


class DelayQ:
    """The blocking client. Threads may share one.

    `url` is redis://, rediss:// or unix://; without one it is that of the settings (docs/settings.md), or else the
    embedded server of the project, which is found or started here. `prefix` and `queue` go before those of the
    settings. Raises ConfigError, and BackendUnavailable for an embedded server that does not start.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        prefix: str | None = None,
        queue: str | None = None,
        settings: Settings | None = None,
    ) -> None:
        settings = settings or load_settings(url=url, prefix=prefix, queue=queue).chosen()
        self._open(backend_of(settings), Routes(settings.routes))

    @classmethod
    def over(cls, backend: Backend, routes: Routes) -> Self:
        """Make a client of a manager, whose connections share their routes."""
        client = cls.__new__(cls)
        client._open(backend, routes)
        return client

    def _open(self, backend: Backend, routes: Routes) -> None:
        session = backend.session(is_async=False, routes=routes)
        self._operations: Operations[JobRef] = Operations(session, partial(JobRef, self))

    schedule = blocking(Operations[JobRef].schedule)
    schedule_many = blocking(Operations[JobRef].schedule_many)
    push_raw = blocking(Operations[JobRef].push_raw)
    cancel = blocking(Operations[JobRef].cancel)
    archive = blocking(Operations[JobRef].archive)
    reschedule = blocking(Operations[JobRef].reschedule)
    run_now = blocking(Operations[JobRef].run_now)
    retry = blocking(Operations[JobRef].retry)
    forget = blocking(Operations[JobRef].forget)
    get = blocking(Operations[JobRef].get)
    look_elsewhere = blocking(Operations[JobRef].look_elsewhere)
    wait = blocking(Operations[JobRef].wait)
    list_jobs = blocking(Operations[JobRef].list_jobs)
    iter_jobs = iterating(Operations[JobRef].iter_jobs)
    iter_failed = iterating(Operations[JobRef].iter_failed)
    failed_groups = blocking(Operations[JobRef].failed_groups)
    retry_failed = iterating(Operations[JobRef].retry_failed)
    prune_failed = blocking(Operations[JobRef].prune_failed)
    queues = blocking(Operations[JobRef].queues)
    stats = blocking(Operations[JobRef].stats)
    history = blocking(Operations[JobRef].history)
    upcoming = blocking(Operations[JobRef].upcoming)
    pause = blocking(Operations[JobRef].pause)
    resume = blocking(Operations[JobRef].resume)
    pause_all = blocking(Operations[JobRef].pause_all)
    resume_all = blocking(Operations[JobRef].resume_all)
    start_maintenance = blocking(Operations[JobRef].start_maintenance)
    end_maintenance = blocking(Operations[JobRef].end_maintenance)
    restart_workers = blocking(Operations[JobRef].restart_workers)
    workers = blocking(Operations[JobRef].workers)
    control = blocking(Operations[JobRef].control)
    clear = blocking(Operations[JobRef].clear)
    queue_set = blocking(Operations[JobRef].queue_set)
    queue_show = blocking(Operations[JobRef].queue_show)
    queue_remove = blocking(Operations[JobRef].queue_remove)
    close = blocking(Operations[JobRef].close)

    def __repr__(self) -> str:
        """Name the server, without secrets."""
        session = self._operations._session
        return f"DelayQ({session.executor.where!r}, prefix={session.keys.prefix!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


Blocking = Callable[Concatenate[DelayQ, P], T]


def _result_of(info: JobInfo | None, job_id: str) -> Any:
    if info is None:
        raise JobNotFound(
            f"Nothing is kept of the job {job_id!r}: it is done, or was cancelled.",
            hint="Give it a retention, such as retention='1h', to keep its result for that long.",
        )
    if info.state == "failed":
        why = f": {info.failure.type}: {info.failure.message}" if info.failure else ""
        raise JobHasFailed(f"The job {job_id!r} has failed{why}.", hint="`retry` runs it again.")
    return read_result(info.result, job_id=job_id)


def _shown(ref: JobRef | AsyncJobRef) -> str:
    return (
        f"{type(ref).__name__}(id={ref.id!r}, queue={ref.queue!r}, state={ref.state!r}, due_ms={ref.due_ms!r}, "
        f"outcome={ref.outcome!r}, name={ref.name!r})"
    )
