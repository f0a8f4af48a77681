"""Sends jobs. Nothing happens before the verb at the end.

    CloseOrder(order_id=42).dispatch(delay="15m")
    CloseOrder(order_id=42).on_queue("vip").delay("15m").dispatch()
    close_order.job(order_id=42).dispatch()                 a function that @job made a job
    dispatch("order.close", {"order_id": 42}, delay="15m")  by name, where the class is not known
    dispatch_many([CloseOrder(order_id=n) for n in orders])

`dispatch` and `adispatch` hand a job to Redis and return a reference; `dispatch_sync` and `adispatch_sync` run it here.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar, Unpack

import msgspec

from delayq.client import AsyncJobRef, JobRef
from delayq.core import envelope as envelopes
from delayq.core.declared import with_options
from delayq.core.errors import InvalidInput
from delayq.core.job_spec import JobSpec
from delayq.core.names import check_job_name
from delayq.core.outcome import DONE
from delayq.core.states import OnConflict
from delayq.core.times import Duration, Instant, duration_ms, is_instant
from delayq.jobs.local_run import Ran, arun_spec, run_spec
from delayq.jobs.options import JobOptions, Said, check_said
from delayq.jobs.registry import registry
from delayq.jobs.unsent import Unsent
from delayq.manager import Connection, Manager, current_manager

RefT = TypeVar("RefT")

_OF_SPEC: Final = frozenset(JobSpec.__struct_fields__)


class Message(msgspec.Struct, frozen=True):
    """One job before anything is said about it. `write` makes its payload; `may_go` is asked first of all."""

    name: str
    write: Callable[[], msgspec.Raw]
    options: JobOptions
    may_go: Callable[[], bool] = lambda: True


class Sendable(ABC):
    """A job that can be dispatched, or a Dispatch that says more about it."""

    @abstractmethod
    def _message(self) -> Message:
        """Return the job."""

    def _said(self) -> Said:
        """Return what is said about it so far."""
        return {}

    def _with(self, **said: Any) -> "Dispatch":
        return Dispatch(self._message(), {**self._said(), **said})  # type: ignore[typeddict-item]

    def on_connection(self, connection: str) -> "Dispatch":
        """Send it over this connection."""
        return self._with(connection=connection)

    def on_queue(self, queue: str) -> "Dispatch":
        """Send it to this queue."""
        return self._with(queue=queue)

    def delay(self, delay: Duration | Instant) -> "Dispatch":
        """Run it after this long ('15m', a timedelta), or at this time (RFC 3339, an aware datetime).

        Raises InvalidInput for what is no duration; a time is read when the job is sent.
        """
        if is_instant(delay):
            return self._with(delay=None, at=delay)
        duration_ms(delay, field="delay")
        return self._with(delay=delay, at=None)

    def without_delay(self) -> "Dispatch":
        """Run it now, whatever delay the job declares."""
        return self._with(delay="0s", at=None)

    def with_headers(self, headers: Mapping[str, str]) -> "Dispatch":
        """Send these headers along, besides those said before."""
        return self._with(headers={**(self._said().get("headers") or {}), **headers})

    def tags(self, *tags: str) -> "Dispatch":
        """Add tags to those that the job declares and those said before."""
        known = self._said().get("tags")
        return self._with(tags=[*(self._message().options.tags or () if known is None else known), *tags])

    def dispatch(self, **said: Unpack[Said]) -> JobRef:
        """Send the job and return a reference to it. What is said here goes before what the job declares.

        When `prepare_for_dispatch` of the job returns False, nothing is sent and the outcome is `vetoed`. Raises
        InvalidInput before anything is sent, and as DelayQ.schedule.
        """
        return dispatch_many([self._with(**said)])[0]

    async def adispatch(self, **said: Unpack[Said]) -> AsyncJobRef:
        """Send the job, awaited; see `dispatch`."""
        return (await adispatch_many([self._with(**said)]))[0]

    def dispatch_sync(self, **said: Unpack[Said]) -> Ran:
        """Run the job here and now, in this process, once, and return how it ended.

        As with Laravel's sync connection, what the handler raises is raised, after the job was told that it failed. A
        handler that asks for a retry, a snooze or a discard has not failed: the outcome says so.
        """
        planned = plan(self._with(**said), current_manager())
        return Ran(DONE) if planned.spec is None else run_spec(planned.spec)

    async def adispatch_sync(self, **said: Unpack[Said]) -> Ran:
        """Run the job here and now, awaited; see `dispatch_sync`. A plain handler runs in a thread."""
        planned = plan(self._with(**said), current_manager())
        return Ran(DONE) if planned.spec is None else await arun_spec(planned.spec)


class Dispatch(Sendable):
    """A job with what is said about its way. It is sent by `dispatch` or `adispatch`, and warns when it never was."""

    __slots__ = ("_job", "_unsent", "said")

    def __init__(self, job: Message, said: Said) -> None:
        self._job = job
        self.said = said
        self._unsent = Unsent(job.name)

    def __repr__(self) -> str:
        """Leave the payload out: it does not belong into a log."""
        return f"Dispatch({self._job.name!r})"

    def _message(self) -> Message:
        self._unsent.is_used = True
        return self._job

    def _said(self) -> Said:
        return self.said


def dispatch(name: str, data: Any = None, **said: Unpack[Said]) -> JobRef:
    """Send a job by its name: 'order.close', or 'Mailer@send' for a method. Raises as Sendable.dispatch.

    `data` is anything that JSON can carry. A job of this name that this program declares lends its options.
    """
    return _by_name(name, data).dispatch(**said)


async def adispatch(name: str, data: Any = None, **said: Unpack[Said]) -> AsyncJobRef:
    """Send a job by its name, awaited; see `dispatch`."""
    return await _by_name(name, data).adispatch(**said)


def dispatch_many(jobs: Iterable[Sendable], *, spread: Duration | None = None) -> list[JobRef]:
    """Send jobs, up to 250 in one trip, and return their references in order.

    `spread` scatters their due times over this long: each by its id, so that it falls on the same time again. Raises as
    Sendable.dispatch; when a later trip fails, the jobs of earlier ones are stored.
    """
    planned = _plan_all(jobs)
    refs = {n: _vetoed(JobRef, one, one.connection.client) for n, one in enumerate(planned) if one.spec is None}
    for connection, conflict, places in _grouped(planned):
        specs = [spec for n in places if (spec := planned[n].spec) is not None]
        sent = connection.client.schedule_many(specs, on_conflict=conflict, spread=spread)
        refs.update(zip(places, sent, strict=True))
    return [refs[n] for n in range(len(planned))]


async def adispatch_many(jobs: Iterable[Sendable], *, spread: Duration | None = None) -> list[AsyncJobRef]:
    """Send jobs, awaited; see `dispatch_many`."""
    planned = _plan_all(jobs)
    refs = {n: _vetoed(AsyncJobRef, one, one.connection.aclient) for n, one in enumerate(planned) if one.spec is None}
    for connection, conflict, places in _grouped(planned):
        specs = [spec for n in places if (spec := planned[n].spec) is not None]
        sent = await connection.aclient.schedule_many(specs, on_conflict=conflict, spread=spread)
        refs.update(zip(places, sent, strict=True))
    return [refs[n] for n in range(len(planned))]


class Planned(msgspec.Struct, frozen=True):
    """The job that a dispatch sends, and its connection. `spec` is None when the job vetoed its dispatch."""

    name: str
    connection: Connection
    spec: JobSpec | None
    on_conflict: OnConflict


def plan(job: Sendable, manager: Manager) -> Planned:
    """Decide what a dispatch sends, and where; nothing is sent by this. Raises InvalidInput, ConfigError."""
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
    return Planned(message.name, connection, spec, conflict)


def _plan_all(jobs: Iterable[Sendable]) -> list[Planned]:
    """Plan jobs, and so check them all, before the first is sent."""
    manager = current_manager()
    planned = []
    for job in jobs:
        if not isinstance(job, Sendable):
            raise InvalidInput(
                f"dispatch_many was given a {type(job).__name__}, which is no job.",
                hint="Give jobs: CloseOrder(order_id=42), or close_order.job(order_id=42).",
                field="jobs",
            )
        planned.append(plan(job, manager))
    return planned


def _grouped(planned: Sequence[Planned]) -> list[tuple[Connection, OnConflict, list[int]]]:
    """Sort what is sent by where it goes, as positions in the list."""
    groups: dict[tuple[str, OnConflict], list[int]] = {}
    for position, one in enumerate(planned):
        if one.spec is not None:
            groups.setdefault((one.connection.name, one.on_conflict), []).append(position)
    return [(planned[places[0]].connection, conflict, places) for (_, conflict), places in groups.items()]


def _vetoed(make_ref: Callable[..., RefT], planned: Planned, client: Any) -> RefT:
    return make_ref(client, "", "", "absent", None, "vetoed", planned.name)


class _ByName(Sendable):
    def __init__(self, message: Message) -> None:
        self._given = message

    def _message(self) -> Message:
        return self._given


def _by_name(name: str, data: Any) -> Sendable:
    checked = check_job_name(name)
    limit = current_manager().settings.max_payload
    options = registry.options_of(checked) or JobOptions()
    return _ByName(Message(checked, lambda: envelopes.encode_data(data, limit), options))
