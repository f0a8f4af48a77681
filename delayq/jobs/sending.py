"""From a job and what is said of it to a connection and a spec: which option counts, then who takes it.

This is the one way from a `Dispatch` to a connection. What changes a payload before it travels (encryption, say) has
its place in `compose`; what decides whether it travels at all, in `Message.veto`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from delayq.core.errors import ConfigError, InvalidInput
from delayq.core.events import JobDispatched
from delayq.core.spec import JobSpec, Limit
from delayq.core.states import OnConflict, State
from delayq.core.views import Fate, JobRef
from delayq.jobs.keyed import keyed, tell_keyed
from delayq.jobs.options import Dispatched, HandlerOptions
from delayq.jobs.registry import current

if TYPE_CHECKING:
    from delayq.manager import Manager

T = TypeVar("T")

_SPEC_ONLY = ("at", "tz", "fold", "id", "tries", "backoff", "timeout", "max_exceptions", "retention")


@dataclass(frozen=True, slots=True)
class Message:
    """What is to be sent: a name, its payload, and what its job declares."""

    name: str
    data: Callable[[], Any]
    """Makes the payload; called when the job is sent. Raises `InvalidPayload`."""
    options: HandlerOptions = field(default_factory=HandlerOptions)
    kinds: Sequence[type] = ()
    """The job's class and its bases, for routes by class."""
    subject: Any = None
    """What `tags` is called with."""
    veto: Callable[[], bool] | None = None
    """Whether the job itself says no."""


class Parcel(NamedTuple):
    """A spec and where it goes."""

    connection: str | None
    spec: JobSpec
    on_conflict: OnConflict
    after_commit: bool


def compose(message: Message, said: Dispatched, manager: Manager) -> Parcel | JobRef:
    """What to send where; or the answer, when the job vetoed itself. Everything wrong is found here."""
    if message.veto is not None and message.veto():
        return JobRef("", "", State.ABSENT, None, Fate.VETOED, message.name)
    declared = message.options
    route = manager.route_of(message.name, message.kinds)
    queue = _either(said.get("queue"), _either(declared.queue, route.queue))
    timed = said.get("delay") is not None or said.get("at") is not None
    data = message.data()
    unique, debounce = keyed(declared, said, data, message.subject)
    spec = JobSpec(
        name=message.name,
        data=data,
        unique=unique,
        debounce=debounce,
        queue=queue,
        delay=said.get("delay") if timed else declared.delay,
        deadline=_limit(said.get("deadline"), declared.deadline),
        retry_until=_limit(said.get("retry_until"), declared.retry_until),
        tags=_tags(message, said),
        headers=said.get("headers"),
        **{name: value for name, value in said.items() if name in _SPEC_ONLY},  # type: ignore[arg-type]  # as `Dispatched`
    )
    for stamp in manager.stamps:
        spec = _with_headers(spec, stamp(spec))
    connection = _either(said.get("connection"), _either(declared.connection, route.connection))
    wait = _either(said.get("after_commit"), declared.after_commit)
    on_conflict = _on_conflict(said.get("on_conflict", "keep"))
    return Parcel(connection, spec, on_conflict, manager.waits_for_commit(connection) if wait is None else wait)


def send(message: Message, said: Dispatched, manager: Manager) -> JobRef:
    """Send one job."""
    parcel = compose(message, said, manager)
    if isinstance(parcel, JobRef):
        return told(parcel)
    return deliver(parcel, manager)


async def asend(message: Message, said: Dispatched, manager: Manager) -> JobRef:
    """As `send`, awaited. What waits for a commit is sent by the hook, blocking."""
    parcel = compose(message, said, manager)
    if isinstance(parcel, JobRef):
        return told(parcel)
    return await adeliver(parcel, manager)


def deliver(parcel: Parcel, manager: Manager) -> JobRef:
    """Hand a parcel in, now or after the commit."""
    send_now = partial(_deliver, parcel, manager)
    return _after_commit(parcel, send_now, manager) if parcel.after_commit else send_now()


async def adeliver(parcel: Parcel, manager: Manager) -> JobRef:
    """As `deliver`, awaited. What waits for a commit is sent by the hook, blocking."""
    if parcel.after_commit:
        return _after_commit(parcel, partial(_deliver, parcel, manager), manager)
    connection = manager.connection(parcel.connection)
    return told(await connection.aschedule(parcel.spec, parcel.on_conflict), connection.name, parcel.spec)


def told(ref: JobRef, connection: str = "", spec: JobSpec | None = None) -> JobRef:
    """The answer, after those who listen here have heard of it; `connection` '' = it went nowhere."""
    events = current().events
    if events.hears(JobDispatched):
        name = ref.name or (spec.name if spec is not None else "")
        events.tell(JobDispatched(ref.id, name, ref.queue, connection, ref.outcome, ref.due_ms))
    if spec is not None and (spec.unique is not None or ref.instead_of):
        tell_keyed(events.tell, ref, spec)
    return ref


def _deliver(parcel: Parcel, manager: Manager) -> JobRef:
    connection = manager.connection(parcel.connection)
    return told(connection.schedule(parcel.spec, parcel.on_conflict), connection.name, parcel.spec)


Group = tuple[str | None, OnConflict]


def grouped(
    messages: Sequence[tuple[Message, Dispatched]], manager: Manager
) -> tuple[list[JobRef | None], dict[Group, list[tuple[int, JobSpec]]]]:
    """Many jobs, by connection; the answers that are known already stand in their places."""
    answers: list[JobRef | None] = [None] * len(messages)
    groups: dict[Group, list[tuple[int, JobSpec]]] = {}
    for number, (message, said) in enumerate(messages):
        parcel = compose(message, said, manager)
        if isinstance(parcel, JobRef):
            answers[number] = told(parcel)
        elif parcel.after_commit:
            raise InvalidInput(
                f"The job {message.name!r} waits for a commit, and many at once cannot.",
                hint="Dispatch it by itself, or with after_commit=False.",
            )
        else:
            groups.setdefault((parcel.connection, parcel.on_conflict), []).append((number, parcel.spec))
    return answers, groups


def _after_commit(parcel: Parcel, deliver: Callable[[], JobRef], manager: Manager) -> JobRef:
    hook = manager.commit_hook
    if hook is None:
        raise ConfigError(
            f"The job {parcel.spec.name!r} waits for a commit, and nobody here knows of a database.",
            hint="Tell the manager with on_commit(hook), or dispatch without after_commit.",
        )
    if hook.after_commit(deliver):
        spec = parcel.spec
        return JobRef(spec.id or "", spec.queue or "", State.ABSENT, None, Fate.AFTER_COMMIT, spec.name)
    return deliver()


def _either(said: T | None, otherwise: T | None) -> T | None:
    return otherwise if said is None else said


def _limit(said: Limit | None, otherwise: Limit | None) -> Limit | None:
    return otherwise if said is None else said


def _tags(message: Message, said: Dispatched) -> Sequence[str] | None:
    declared = message.options.tags
    own = declared(message.subject) if callable(declared) else declared
    return list(dict.fromkeys((*(own or ()), *(said.get("tags") or ())))) or None


def _with_headers(spec: JobSpec, headers: Mapping[str, str]) -> JobSpec:
    return msgspec.structs.replace(spec, headers={**headers, **(spec.headers or {})}) if headers else spec


def _on_conflict(word: str) -> OnConflict:
    try:
        return OnConflict(word)
    except ValueError:
        known = ", ".join(OnConflict)
        raise InvalidInput(f"on_conflict is {word!r}; it must be one of {known}.") from None
