"""From a job and what is said of it to a connection and a spec: which option counts, then who takes it.

This is the one way from a `Dispatch` to a connection. What changes a payload before it travels has its place in
`compose` (encryption needs the id, and so waits for `core.spec.prepare`); what decides whether it travels at all, in
`Message.veto`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

import msgspec

from delayq.core.envelope import encode_data
from delayq.core.errors import InvalidInput
from delayq.core.events import JobDispatched
from delayq.core.spec import JobSpec, Limit, check_headers, check_tags
from delayq.core.states import OnConflict, State
from delayq.core.unique import Unique
from delayq.core.views import Fate, JobRef
from delayq.jobs.class_handler import ClassHandler
from delayq.jobs.committing import belonging, joining, wait_for_commit
from delayq.jobs.handler import Handler
from delayq.jobs.keyed import keyed, tell_keyed
from delayq.jobs.message import Message, Parcel
from delayq.jobs.middleware.limited import Limited
from delayq.jobs.options import Dispatched, HandlerOptions
from delayq.jobs.registry import current

if TYPE_CHECKING:
    from delayq.manager import Manager

T = TypeVar("T")

_SPEC_ONLY = ("at", "tz", "fold", "id", "tries", "backoff", "timeout", "max_exceptions", "retention")


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
        headers=None if (headers := said.get("headers")) is None else check_headers(headers),
        encrypted=_either(said.get("encrypted"), declared.encrypted),
        limits=_limits(declared),
        **{name: value for name, value in said.items() if name in _SPEC_ONLY},  # type: ignore[arg-type]  # as `Dispatched`
    )
    for stamp in manager.stamps:
        spec = _with_headers(spec, stamp(spec))
    connection = _either(said.get("connection"), _either(declared.connection, route.connection))
    on_conflict = _on_conflict(said.get("on_conflict", "keep"))
    wait, session = belonging(said, declared, connection, manager)
    return Parcel(connection, spec, on_conflict, wait, session)


def with_declared(spec: JobSpec, handler: Handler) -> JobSpec:
    """A spec that a client was given by name, with what its job declares where the spec says nothing.

    The same options as in `compose`, without those of a dispatch alone: the connection, routes by class, `after_commit`
    and the veto. Raises `InvalidPayload` where a key or tags are a function of a job that the payload does not make.
    """
    declared = handler.options
    unique = declared.unique.key if isinstance(declared.unique, Unique) else None
    debounce = None if declared.debounce is None else declared.debounce.key
    subject = None
    if isinstance(handler, ClassHandler) and any(map(callable, (unique, debounce, declared.tags))):
        raw = spec.data if isinstance(spec.data, bytes) else encode_data(spec.data, sys.maxsize)
        subject = handler.make(msgspec.Raw(raw))
    said: Dispatched = {"id": spec.id, "unique": spec.unique, "debounce": spec.debounce, "tags": spec.tags}
    message = Message(spec.name, lambda: spec.data, declared, subject=subject)
    by = keyed(declared, said, spec.data, subject)
    timed = spec.delay is not None or spec.at is not None
    return msgspec.structs.replace(
        spec,
        queue=_either(spec.queue, declared.queue),
        delay=spec.delay if timed else declared.delay,
        deadline=_limit(spec.deadline, declared.deadline),
        retry_until=_limit(spec.retry_until, declared.retry_until),
        tags=_tags(message, said),
        encrypted=_either(spec.encrypted, declared.encrypted),
        unique=by.unique,
        debounce=by.debounce,
    )


def send(message: Message, said: Dispatched, manager: Manager) -> JobRef:
    """Send one job."""
    parcel = compose(message, said, manager)
    if isinstance(parcel, JobRef):
        return told(parcel)
    return deliver(parcel, said, manager)


async def asend(message: Message, said: Dispatched, manager: Manager) -> JobRef:
    """As `send`, awaited."""
    parcel = compose(message, said, manager)
    if isinstance(parcel, JobRef):
        return told(parcel)
    return await adeliver(parcel, said, manager)


def deliver(parcel: Parcel, said: Dispatched, manager: Manager) -> JobRef:
    """Hand a parcel in, now or after the commit."""
    if parcel.after_commit and (ref := wait_for_commit(parcel, said, manager)):
        return ref
    connection = manager.connection(parcel.connection)
    with joining(parcel):
        ref = connection.schedule(parcel.spec, parcel.on_conflict)
    return told(ref, connection.name, parcel.spec)


async def adeliver(parcel: Parcel, said: Dispatched, manager: Manager) -> JobRef:
    """As `deliver`, awaited."""
    if parcel.after_commit and (ref := wait_for_commit(parcel, said, manager)):
        return ref
    connection = manager.connection(parcel.connection)
    with joining(parcel):
        ref = await connection.aschedule(parcel.spec, parcel.on_conflict)
    return told(ref, connection.name, parcel.spec)


def told(ref: JobRef, connection: str = "", spec: JobSpec | None = None) -> JobRef:
    """The answer, after those who listen here have heard of it; `connection` '' = it went nowhere."""
    events = current().events
    if events.hears(JobDispatched):
        name = ref.name or (spec.name if spec is not None else "")
        events.tell(JobDispatched(ref.id, name, ref.queue, connection, ref.outcome, ref.due_ms))
    if spec is not None and (spec.unique is not None or ref.instead_of):
        tell_keyed(events.tell, ref, spec)
    return ref


Group = tuple[str | None, OnConflict, int]
"""What goes in one call: the connection, what a taken id means, and the session it is written in (its `id`)."""
Grouped = dict[Group, tuple[Parcel, list[tuple[int, JobSpec]]]]
"""The first parcel of each group, and the place and the spec of all."""


def grouped(messages: Sequence[tuple[Message, Dispatched]], manager: Manager) -> tuple[list[JobRef | None], Grouped]:
    """Many jobs, by connection; the answers that are known already stand in their places."""
    answers: list[JobRef | None] = [None] * len(messages)
    groups: Grouped = {}
    for number, (message, said) in enumerate(messages):
        parcel = compose(message, said, manager)
        if isinstance(parcel, JobRef):
            answers[number] = told(parcel)
        elif parcel.after_commit and (ref := wait_for_commit(parcel, said, manager)):
            answers[number] = ref
        else:
            group = (parcel.connection, parcel.on_conflict, id(parcel.session))
            groups.setdefault(group, (parcel, []))[1].append((number, parcel.spec))
    return answers, groups


def _either(said: T | None, otherwise: T | None) -> T | None:
    return otherwise if said is None else said


def _limit(said: Limit | None, otherwise: Limit | None) -> Limit | None:
    return otherwise if said is None else said


def _limits(declared: HandlerOptions) -> str | None:
    """The first limit that stands among its middleware, as people wrote it."""
    return next((repr(one) for one in declared.middleware or () if isinstance(one, Limited)), None)


def _tags(message: Message, said: Dispatched) -> Sequence[str] | None:
    declared = message.options.tags
    own = declared(message.subject) if callable(declared) else declared
    tags = said.get("tags")
    if own is None and tags is None:
        return None
    return list(dict.fromkeys((*check_tags(own or ()), *check_tags(tags or ())))) or None


def _with_headers(spec: JobSpec, headers: Mapping[str, str]) -> JobSpec:
    return msgspec.structs.replace(spec, headers={**headers, **(spec.headers or {})}) if headers else spec


def _on_conflict(word: str) -> OnConflict:
    try:
        return OnConflict(word)
    except ValueError:
        known = ", ".join(OnConflict)
        raise InvalidInput(f"on_conflict is {word!r}; it must be one of {known}.") from None
