"""The two clients, and the references to jobs that they return.

The methods of DelayQ block. AsyncDelayQ has the same methods as coroutines, for asyncio. Their docstrings are in
`delayq/redis/operations/`, because each method is written once for both clients.
"""

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import cached_property, partial, wraps
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

import msgspec

from delayq.backends.protocol import Backend
from delayq.backends.registry import backend_of
from delayq.core.errors import InvalidInput, JobHasFailed, JobNotFound
from delayq.core.results import read_result
from delayq.core.states import Answer, State
from delayq.core.times import Duration, Instant
from delayq.core.views import JobInfo
from delayq.redis.connection.leaf import drive
from delayq.redis.operations.batches import BatchOperations
from delayq.redis.operations.limits import LimitOperations
from delayq.redis.operations.operations import Operations
from delayq.settings.connections import Routes
from delayq.settings.model import Settings, load_settings

P = ParamSpec("P")
T = TypeVar("T")
OperationsT = TypeVar("OperationsT")


class JobRef(msgspec.Struct, frozen=True, gc=False):
    """A reference to a job, as DelayQ returns it. Its members show the job at the time of the call.

        id         id of the job; if another job owns the unique key, the id of that job; '' = vetoed
        queue      queue of the job; '' = vetoed
        state      state of the job, such as 'scheduled' or 'ready'; 'absent' = the job is not stored
        due_ms     due time in epoch ms; None = the job does not wait for a due time, or is not stored
        outcome    effect of the call: 'created', 'kept', 'replaced', 'postponed', 'rescheduled', 'scheduled', 'ready',
                   'after commit' (sent when the database transaction commits), or 'vetoed' (not sent, because the job
                   class refused it)
        name       name of the job; '' after calls that do not read the name

    The methods of a reference call the client with the id and the queue of the job.
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
        """Cancel the job. See DelayQ.cancel."""
        return self.client.cancel(self.id, queue=self.queue, running=running)

    def reschedule(
        self,
        *,
        delay: Duration | None = None,
        at: Instant | None = None,
        tz: str | None = None,
        fold: int | None = None,
    ) -> "JobRef":
        """Change the due time of the job. See DelayQ.reschedule."""
        return self.client.reschedule(self.id, queue=self.queue, delay=delay, at=at, tz=tz, fold=fold)

    def run_now(self) -> "JobRef":
        """Make the job ready now. See DelayQ.run_now."""
        return self.client.run_now(self.id, queue=self.queue)

    def refresh(self) -> JobInfo | None:
        """Return all facts about the job, or None if it is not stored, or has ended and is not kept. See DelayQ.get."""
        return self.client.get(self.id, queue=self.queue)

    def wait(self, timeout: Duration) -> JobInfo | None:
        """Wait until the job has ended. See DelayQ.wait."""
        return self.client.wait(self.id, queue=self.queue, timeout=timeout)

    def result(self, timeout: Duration = "0s") -> Any:
        """Return the result of the handler. Wait up to `timeout` for the end of the job; by default, do not wait.

        Results are kept only for jobs with a retention. Raises TimeoutError if the job has not ended, JobHasFailed
        if it has failed, JobNotFound if it is not kept, and ResultLost if the result could not be stored. For an
        encrypted job, also raises the errors of `JobInfo.result`.
        """
        return _result_of(self.wait(timeout), self.id)


class AsyncJobRef(msgspec.Struct, frozen=True, gc=False):
    """A reference to a job, as AsyncDelayQ returns it. It has the same members as JobRef, and its methods are
    coroutines.
    """

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
        """Cancel the job. See DelayQ.cancel."""
        return await self.client.cancel(self.id, queue=self.queue, running=running)

    async def reschedule(
        self,
        *,
        delay: Duration | None = None,
        at: Instant | None = None,
        tz: str | None = None,
        fold: int | None = None,
    ) -> "AsyncJobRef":
        """Change the due time of the job. See DelayQ.reschedule."""
        return await self.client.reschedule(self.id, queue=self.queue, delay=delay, at=at, tz=tz, fold=fold)

    async def run_now(self) -> "AsyncJobRef":
        """Make the job ready now. See DelayQ.run_now."""
        return await self.client.run_now(self.id, queue=self.queue)

    async def refresh(self) -> JobInfo | None:
        """Return all facts about the job, or None if it is not stored, or has ended and is not kept. See DelayQ.get."""
        return await self.client.get(self.id, queue=self.queue)

    async def wait(self, timeout: Duration) -> JobInfo | None:
        """Wait until the job has ended. See DelayQ.wait."""
        return await self.client.wait(self.id, queue=self.queue, timeout=timeout)

    async def result(self, timeout: Duration = "0s") -> Any:
        """Return the result of the handler. See JobRef.result."""
        return _result_of(await self.wait(timeout), self.id)


class AsyncDelayQ(Operations[AsyncJobRef]):
    """The client for asyncio. Several event loops may share one client.

    The arguments and errors are the same as for DelayQ. The client can be used with `async with`.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        prefix: str | None = None,
        queue: str | None = None,
        settings: Settings | None = None,
    ) -> None:
        settings = _settings_of(settings, url=url, prefix=prefix, queue=queue)
        self._open(backend_of(settings), Routes(settings.routes))

    @classmethod
    def over(cls, backend: Backend, routes: Routes) -> Self:
        """Make a client over a backend. Clients of one manager share their routes."""
        client = cls.__new__(cls)
        client._open(backend, routes)
        return client

    def _open(self, backend: Backend, routes: Routes) -> None:
        super().__init__(backend.session(is_async=True, routes=routes), partial(AsyncJobRef, self))

    @cached_property
    def batches(self) -> BatchOperations:
        """The operations on batches."""
        return BatchOperations(self._session, self)

    @cached_property
    def limits(self) -> LimitOperations:
        """The operations on limits."""
        return LimitOperations(self._session)

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
    """Turn an operation into a method of DelayQ with the same signature, without `async`."""

    @wraps(operation)
    def method(self: "DelayQ", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return drive(operation(self._operations, *args, **kwargs))

    return method


class _Part(Generic[OperationsT]):
    """Some of the operations of a DelayQ, as blocking methods."""

    def __init__(self, operations: OperationsT) -> None:
        self._operations = operations


def of_part(
    operation: "Callable[Concatenate[OperationsT, P], Coroutine[Any, Any, T]]",
) -> "Callable[Concatenate[_Part[OperationsT], P], T]":
    """Turn an operation into a method of a _Part with the same signature, without `async`."""

    @wraps(operation)
    def method(self: "_Part[OperationsT]", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return drive(operation(self._operations, *args, **kwargs))

    return method


def iterating(
    operation: "Callable[Concatenate[Operations[JobRef], P], AsyncIterator[T]]",
) -> "Callable[Concatenate[DelayQ, P], Iterator[T]]":
    """Turn an operation that is an async generator into a method of DelayQ that is a generator."""

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


class Batches(_Part[BatchOperations]):
    """The operations on batches, as `DelayQ.batches` has them."""

    get = of_part(BatchOperations.get)
    require = of_part(BatchOperations.require)
    list = of_part(BatchOperations.list)
    failed = of_part(BatchOperations.failed)
    without_job = of_part(BatchOperations.without_job)
    cancel = of_part(BatchOperations.cancel)
    retry = of_part(BatchOperations.retry)
    send = of_part(BatchOperations.send)
    add = of_part(BatchOperations.add)


class Limits(_Part[LimitOperations]):
    """The operations on limits, as `DelayQ.limits` has them."""

    acquire = of_part(LimitOperations.acquire)
    release = of_part(LimitOperations.release)
    take = of_part(LimitOperations.take)
    list = of_part(LimitOperations.list)
    free = of_part(LimitOperations.free)


def _settings_of(settings: Settings | None, **given: str | None) -> Settings:
    """Return the settings of a client. Raises InvalidInput if `settings` is given together with another argument."""
    if settings is None:
        return load_settings(**given).chosen()
    both = [name for name, value in given.items() if value is not None]
    if both:
        raise InvalidInput(
            f"The arguments settings= and {both[0]}= are both given.",
            hint="Leave out one of them. The settings can have this value too.",
            field=both[0],
        )
    return settings


class DelayQ:
    """The blocking client. Several threads may share one client.

        url         address of Redis: redis://, rediss://, unix://, redis+sentinel:// or redis+cluster://; None = the
                    address in the settings, or else the embedded server of the project
        prefix      prefix of all keys; None = the prefix in the settings
        queue       default queue; None = the default queue in the settings
        settings    settings to use instead of the other arguments; None = the settings of the project

    docs/settings.md describes the settings. The client can be used with `with`. Connections open when they are first
    used.

    Without a url, the first call starts the embedded server, unless the server is running already. If the project has
    no data yet, only calls that store new jobs, such as `schedule` or the dispatch of a chain or batch, create the data
    directory of the server. All other calls then raise BackendUnavailable.

    The constructor raises ConfigError if a setting cannot be used, and InvalidInput if `settings` is given together
    with another argument. With the embedded server, every method can raise ConfigError, and BackendUnavailable if the
    server does not start. The docstring of each method names its errors; the docstring of Operations names the errors
    of the server, which every method can raise.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        prefix: str | None = None,
        queue: str | None = None,
        settings: Settings | None = None,
    ) -> None:
        settings = _settings_of(settings, url=url, prefix=prefix, queue=queue)
        self._open(backend_of(settings), Routes(settings.routes))

    @classmethod
    def over(cls, backend: Backend, routes: Routes) -> Self:
        """Make a client over a backend. Clients of one manager share their routes."""
        client = cls.__new__(cls)
        client._open(backend, routes)
        return client

    def _open(self, backend: Backend, routes: Routes) -> None:
        session = backend.session(is_async=False, routes=routes)
        self._operations: Operations[JobRef] = Operations(session, partial(JobRef, self))

    @cached_property
    def batches(self) -> Batches:
        """The operations on batches."""
        return Batches(BatchOperations(self._operations._session, self._operations))

    @cached_property
    def limits(self) -> Limits:
        """The operations on limits."""
        return Limits(LimitOperations(self._operations._session))

    schedule = blocking(Operations[JobRef].schedule)
    send_chain = blocking(Operations[JobRef].send_chain)
    prepare_many = blocking(Operations[JobRef].prepare_many)
    send_prepared = blocking(Operations[JobRef].send_prepared)
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
    search = blocking(Operations[JobRef].search)
    iter_search = iterating(Operations[JobRef].iter_search)
    find_failed = blocking(Operations[JobRef].find_failed)
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
            f"The job {job_id!r} is not kept: it was completed, cancelled or deleted, or never stored.",
            hint="To keep results, give the job a retention, such as retention='1h'.",
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
