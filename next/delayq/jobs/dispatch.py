"""Dispatches jobs. Nothing is sent before `dispatch` is called.

    CloseOrder(order_id=42).dispatch(delay="15m")
    CloseOrder(order_id=42).on_queue("vip").delay("15m").dispatch()
    close_order.job(order_id=42).dispatch()                 a function with the decorator @job
    dispatch("order.close", {"order_id": 42}, delay="15m")  by name, if this program does not have the class
    dispatch_many([CloseOrder(order_id=n) for n in orders])

`dispatch` and `adispatch` store a job in Redis and return a reference. `dispatch_sync` and `adispatch_sync` run the job
in this process instead.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Unpack

import msgspec

from delayq.core import envelope as envelopes
from delayq.core.declared import with_options
from delayq.core.display import shown
from delayq.core.errors import InvalidInput
from delayq.core.events import JobDispatched
from delayq.core.job_spec import JobSpec, check_bool
from delayq.core.listeners import listeners
from delayq.core.names import check_job_name
from delayq.core.outcome import DONE
from delayq.core.states import OnConflict
from delayq.core.times import Duration, Instant, duration_ms, is_instant
from delayq.jobs.dispatched import tell_dispatched
from delayq.jobs.local_run import Ran, arun_spec, run_spec
from delayq.jobs.models import refs_by_type
from delayq.jobs.options import JobOptions, Said, check_said
from delayq.jobs.registry import registry
from delayq.jobs.transactions import NOTHING_SAID, Commit, Waiting, await_commit, session_to_wait_for, wait_for_commit
from delayq.jobs.unsent import Unsent
from delayq.manager import Connection, Manager, current_manager

if TYPE_CHECKING:  # clients import redis-py, which a program that only declares jobs does not need
    from delayq.client import AsyncJobRef, JobRef

_OF_SPEC: Final = frozenset(JobSpec.__struct_fields__)


class Message(msgspec.Struct, frozen=True):
    """One job and its declared `options`, before the options of the dispatch are applied.

    `write` returns the payload. `may_go` is called before `write`. If `may_go` returns False, the job is not sent.
    """

    name: str
    write: Callable[[], msgspec.Raw]
    options: JobOptions
    may_go: Callable[[], bool] = lambda: True


class Sendable(ABC):
    """Anything that can be dispatched, such as an object of a job class, or a Dispatch, which is a job with options."""

    @abstractmethod
    def _message(self) -> Message: ...

    def _said(self) -> Said:
        """Return the options given so far."""
        return {}

    def _with(self, **said: Any) -> "Dispatch":
        return Dispatch(self._message(), {**self._said(), **said})  # type: ignore[typeddict-item]

    def on_connection(self, connection: str) -> "Dispatch":
        """Return a Dispatch that uses this connection: a name from `[connections]` in the settings file, or from
        `Manager.define`.
        """
        return self._with(connection=connection)

    def on_queue(self, queue: str) -> "Dispatch":
        """Return a Dispatch that uses this queue."""
        return self._with(queue=queue)

    def delay(self, delay: Duration | Instant) -> "Dispatch":
        """Return a Dispatch with a delay ('15m', a timedelta) or a due time (RFC 3339, a datetime with a time zone).

        Raises InvalidInput for an invalid duration. A point in time is checked when the job is dispatched.
        """
        if is_instant(delay):
            return self._with(delay=None, at=delay)
        duration_ms(delay, field="delay")
        return self._with(delay=delay, at=None)

    def without_delay(self) -> "Dispatch":
        """Return a Dispatch that is due now, even if the job declares a delay."""
        return self._with(delay="0s", at=None)

    def with_headers(self, headers: Mapping[str, str]) -> "Dispatch":
        """Return a Dispatch with these headers, added to the headers given before."""
        return self._with(headers={**(self._said().get("headers") or {}), **headers})

    def tags(self, *tags: str) -> "Dispatch":
        """Return a Dispatch with these tags, added to the declared tags and to the tags given before."""
        known = self._said().get("tags")
        return self._with(tags=[*(self._message().options.tags or () if known is None else known), *tags])

    def after_commit(self) -> "Dispatch":
        """Return a Dispatch that waits for the commit of a transaction; see `delayq.within`."""
        return self._with(after_commit=True)

    def within(self, session: Any) -> "Dispatch":
        """Return a Dispatch that waits for the commit of the transaction of this session; see `delayq.within`."""
        return self._with(within=session)

    def dispatch(self, **said: Unpack[Said]) -> "JobRef":
        """Dispatch the job and return a reference to it.

        The keywords are options of this job, and override the declared options: `queue`, `connection`, `delay`, `at`,
        `tz`, `fold`, `id`, `on_conflict`, `tries`, `backoff`, `timeout`, `deadline`, `retry_until`, `max_exceptions`,
        `retention`, `headers`, `tags`, `unique` and `encrypted`. JobSpec explains them, and DelayQ.schedule explains
        `on_conflict`.

        With `after_commit` or `within`, the job waits for the commit of a database transaction; see `delayq.within`.
        If a transaction is open, the `outcome` of the reference is "after commit", and its state is "absent". If no
        transaction is open, the job is sent at once.

        If `prepare_for_dispatch` of the job returns False, nothing is sent, and the `outcome` of the reference is
        "vetoed". Raises InvalidInput and ConfigError before anything is sent, and the errors of DelayQ.schedule.

            CloseOrder(order_id=42).dispatch(delay="15m", id="order-42")
        """
        return dispatch_many([self._with(**said)])[0]

    async def adispatch(self, **said: Unpack[Said]) -> "AsyncJobRef":
        """Dispatch the job in an event loop; see `dispatch`."""
        return (await adispatch_many([self._with(**said)]))[0]

    def dispatch_sync(self, **said: Unpack[Said]) -> Ran:
        """Run the job once, now and in this process, without Redis, and return its outcome.

        If the handler raises an exception, the `failed` hook of the job is called, and then the exception is raised
        again, as with Laravel's sync connection. `Retry`, `Snooze` and `Discard` are not raised, because the job has
        then not failed. The `outcome` of the returned Ran shows which of them the handler raised. If
        `prepare_for_dispatch` returns False, the job is not run, and the `outcome` is `Done()`, as after a successful
        run.
        """
        planned = plan(self._with(**said), current_manager())
        return Ran(DONE) if planned.spec is None else run_spec(planned.spec)

    async def adispatch_sync(self, **said: Unpack[Said]) -> Ran:
        """Run the job now, in this event loop; see `dispatch_sync`. A handler that is not async runs in a thread."""
        planned = plan(self._with(**said), current_manager())
        return Ran(DONE) if planned.spec is None else await arun_spec(planned.spec)


class Dispatch(Sendable):
    """A job with options for its dispatch. Call `dispatch` or `await adispatch` to send it.

    Methods such as `on_queue` return a new Dispatch with one more option. A Dispatch that was never sent causes a
    RuntimeWarning.
    """

    __slots__ = ("_job", "_unsent", "said")

    def __init__(self, job: Message, said: Said) -> None:
        self._job = job
        self.said = said
        self._unsent = Unsent(f"A Dispatch of the job {job.name!r}")

    def __repr__(self) -> str:
        """Leave the payload out, because payloads do not belong in a log."""
        return f"Dispatch({self._job.name!r})"

    def _message(self) -> Message:
        self._unsent.is_used = True
        return self._job

    def _said(self) -> Said:
        return self.said


def dispatch(name: str, data: Any = None, **said: Unpack[Said]) -> "JobRef":
    """Dispatch a job by its name and return a reference to it.

    `name` is a job name such as "order.close", or "Mailer@send" for a method. `data` is any value that JSON can carry.
    If this program declares a job with this name, its declared options apply. The keywords override them; see
    `Job.dispatch`. Raises the errors of `Job.dispatch`.

        dispatch("order.close", {"order_id": 42}, delay="15m")
    """
    return _by_name(name, data).dispatch(**said)


async def adispatch(name: str, data: Any = None, **said: Unpack[Said]) -> "AsyncJobRef":
    """Dispatch a job by its name in an event loop; see `dispatch`."""
    return await _by_name(name, data).adispatch(**said)


def dispatch_many(jobs: Iterable[Sendable], *, spread: Duration | None = None) -> "list[JobRef]":
    """Dispatch many jobs, up to 250 in one round trip, and return their references in the same order.

    `spread` is a duration such as "10m": each job gets an additional delay of up to this time. The additional delay is
    computed from the id of the job, so that a job that is sent again with the same id gets the same delay.

    Jobs with the same connection, `on_conflict` and session are sent as one group. All jobs of a group are checked
    before the first of them is sent. Raises the errors of `Job.dispatch`. If a round trip fails, the jobs of earlier
    round trips are stored.

        dispatch_many([CloseOrder(order_id=n) for n in orders], spread="10m")
    """
    from delayq.client import JobRef

    planned = _plan_all(jobs)
    refs = {n: _vetoed(one) for n, one in enumerate(planned) if one.spec is None}
    for group in _grouped(planned):
        client, conflict = group.connection.client, group.on_conflict
        if group.session is None:
            sent = client.schedule_many(group.specs, on_conflict=conflict, spread=spread)
        else:
            prepared = client.prepare_many(group.specs, spread=spread)
            if wait_for_commit(group.session, Waiting(group.connection, prepared, conflict)):
                sent = [JobRef(client, one.id, one.queue, "absent", None, "after commit", one.name) for one in prepared]
            else:
                sent = client.send_prepared(prepared, on_conflict=conflict)
        if JobDispatched in listeners:
            tell_dispatched(sent)
        refs.update(zip(group.places, sent, strict=True))
    return [refs[n] for n in range(len(planned))]


async def adispatch_many(jobs: Iterable[Sendable], *, spread: Duration | None = None) -> "list[AsyncJobRef]":
    """Dispatch many jobs in an event loop; see `dispatch_many`."""
    from delayq.client import AsyncJobRef

    planned = _plan_all(jobs)
    refs = {n: _avetoed(one) for n, one in enumerate(planned) if one.spec is None}
    for group in _grouped(planned):
        client, conflict = group.connection.aclient, group.on_conflict
        if group.session is None:
            sent = await client.schedule_many(group.specs, on_conflict=conflict, spread=spread)
        else:
            prepared = await client.prepare_many(group.specs, spread=spread)
            if await await_commit(group.session, Waiting(group.connection, prepared, conflict)):
                sent = [
                    AsyncJobRef(client, one.id, one.queue, "absent", None, "after commit", one.name) for one in prepared
                ]
            else:
                sent = await client.send_prepared(prepared, on_conflict=conflict)
        if JobDispatched in listeners:
            tell_dispatched(sent)
        refs.update(zip(group.places, sent, strict=True))
    return [refs[n] for n in range(len(planned))]


class Planned(msgspec.Struct, frozen=True):
    """The job that a dispatch sends, and its connection. `spec` is None if `prepare_for_dispatch` returned False."""

    name: str
    connection: Connection
    spec: JobSpec | None
    on_conflict: OnConflict
    commit: Commit = NOTHING_SAID


class Group(msgspec.Struct, frozen=True):
    """Jobs that a dispatch sends together. `places`: their positions in the list of all jobs.

    `session`: the session whose commit the jobs wait for; None = they are sent at once.
    """

    connection: Connection
    on_conflict: OnConflict
    session: Any
    places: list[int]
    specs: list[JobSpec]


def plan(job: Sendable, manager: Manager) -> Planned:
    """Decide what a dispatch sends, and where. Nothing is sent yet. Raises InvalidInput and ConfigError."""
    message, said = job._message(), job._said()
    options = message.options
    check_said(said, job_name=message.name)
    connection, queue = manager.destination(
        message.name,
        queue=options.queue if said.get("queue") is None else said["queue"],
        connection=said.get("connection") or options.connection,
    )
    conflict = said.get("on_conflict") or "keep"
    if not message.may_go():
        return Planned(message.name, connection, None, conflict)
    words: dict[str, Any] = {name: value for name, value in said.items() if name in _OF_SPEC and value is not None}
    words["queue"] = queue
    spec = with_options(JobSpec(name=message.name, data=message.write(), **words), options.when_sent())
    if added := manager.headers_for(spec):
        spec = msgspec.structs.replace(spec, headers={**added, **(spec.headers or {})})
    return Planned(message.name, connection, spec, conflict, _commit_of(said, options))


def _commit_of(said: Said, options: JobOptions) -> Commit:
    after_commit = said.get("after_commit")
    if after_commit is not None:
        check_bool("after_commit", after_commit)
    return Commit(after_commit, said.get("within"), options.after_commit)


def _plan_all(jobs: Iterable[Sendable]) -> list[Planned]:
    """Plan all jobs, so that all payloads are checked before the first job is sent."""
    manager = current_manager()
    planned = []
    if isinstance(jobs, Sendable) or not isinstance(jobs, Iterable):
        raise InvalidInput(
            f"jobs is {shown(jobs)}, and not a list of jobs.", hint="Use dispatch_many([A(), B()]).", field="jobs"
        )
    for position, job in enumerate(jobs):
        if not isinstance(job, Sendable):
            raise InvalidInput(
                f"jobs[{position}] is {shown(job)}, which is not a job.",
                hint="Give jobs such as CloseOrder(order_id=42) or close_order.job(order_id=42).",
                field="jobs",
            )
        planned.append(plan(job, manager))
    return planned


def _grouped(planned: Sequence[Planned]) -> Iterable[Group]:
    """Group the jobs to send by connection, `on_conflict` and the session whose commit they wait for."""
    groups: dict[tuple[str, OnConflict, object], Group] = {}
    for position, one in enumerate(planned):
        if one.spec is not None:
            session = session_to_wait_for(f"The job {one.name!r}", one.connection, one.commit)
            key = one.connection.name, one.on_conflict, session if isinstance(session, str) else id(session)
            group = groups.setdefault(key, Group(one.connection, one.on_conflict, session, [], []))
            group.places.append(position)
            group.specs.append(one.spec)
    return groups.values()


def _vetoed(planned: Planned) -> "JobRef":
    from delayq.client import JobRef

    return JobRef(planned.connection.client, "", "", "absent", None, "vetoed", planned.name)


def _avetoed(planned: Planned) -> "AsyncJobRef":
    from delayq.client import AsyncJobRef

    return AsyncJobRef(planned.connection.aclient, "", "", "absent", None, "vetoed", planned.name)


class _ByName(Sendable):
    def __init__(self, message: Message) -> None:
        self._given = message

    def _message(self) -> Message:
        return self._given


def _by_name(name: str, data: Any) -> Sendable:
    checked = check_job_name(name)
    limit = current_manager().settings.max_payload
    handler = registry.find(checked)
    options, fields = (JobOptions(), {}) if handler is None else (handler.options, handler.model_fields)

    def write() -> msgspec.Raw:
        raw = envelopes.encode_data(refs_by_type(data, fields, job_name=checked), limit)
        if handler is not None:
            registry.check_payload(handler, raw)
        return raw

    return _ByName(Message(checked, write, options))
