"""What was handed in while a fake was in force, and which of it is meant: a job, a class, a function, a name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, TypeAlias, TypeGuard

import msgspec

from delayq.core.durations import format_duration
from delayq.core.envelope import ABSENT, Envelope, decode
from delayq.core.followups import Link, Plan, decode_chain
from delayq.core.when import format_instant
from delayq.jobs.function import JobFunction
from delayq.jobs.job import Job

What: TypeAlias = type[Job] | Job | JobFunction[..., Any] | str
"""Which jobs are meant: those of a class, one that equals this one, those of a function or of a name ('order.*')."""
Shape: TypeAlias = "What | Sequence[Shape]"
"""A job, or a list: the links of a chain, or the members of a batch."""
Predicate: TypeAlias = Callable[[Any], object]
"""Looks closer. It is given the job where a class was named, made again from what travelled; else the `Pushed`."""


@dataclass(frozen=True, slots=True)
class Pushed:
    """One job as it was handed in. `delay_ms` is None when it was given a time; `raw` is what would have travelled."""

    connection: str
    queue: str
    envelope: Envelope = field(repr=False)
    raw: bytes = field(repr=False)
    delay_ms: int | None
    due_ms: int

    @property
    def id(self) -> str:
        """The job's id, the caller's or a new one."""
        return self.envelope.id

    @property
    def name(self) -> str:
        """The job's name."""
        return self.envelope.name

    @property
    def data(self) -> Any:
        """The payload, decoded."""
        return msgspec.json.decode(self.envelope.data)

    @property
    def headers(self) -> Mapping[str, str]:
        """Its headers, those of stamps included."""
        return self.envelope.headers or {}

    @property
    def tags(self) -> tuple[str, ...]:
        """Its tags."""
        return tuple(self.envelope.tags or ())

    @property
    def chain(self) -> tuple[Pushed | Batched, ...]:
        """What follows it in its chain, in order; empty for a job by itself. A link's `due_ms` is 0: it is not due."""
        if self.envelope.chain is ABSENT:
            return ()
        return tuple(_link(self.connection, link) for link in decode_chain(self.envelope.chain).next)

    @property
    def catch(self) -> tuple[Pushed | Batched, ...]:
        """The jobs that are sent when a link of its chain fails."""
        if self.envelope.chain is ABSENT:
            return ()
        return tuple(_link(self.connection, link) for link in decode_chain(self.envelope.chain).catch)

    def as_job(self, kind: type[Job]) -> Job:
        """The job again, as a worker would make it."""
        handler = kind._handler
        if handler is None:
            raise TypeError(f"{kind.__qualname__} has no handle, so there are no jobs of it; name the class that has.")
        return handler.make(self.envelope.data)

    def __str__(self) -> str:
        """For a failed assertion: name, where to, when, payload."""
        when = f"at {format_instant(self.due_ms)}" if self.delay_ms is None else "at once"
        if self.delay_ms:
            when = f"in {format_duration(self.delay_ms)}"
        data = bytes(self.envelope.data).decode("utf-8", "replace")
        shown = data if len(data) <= 200 else f"{data[:200]} …"
        via = "" if self.connection == "default" else f" over {self.connection}"
        chain = f", then {', '.join(one.name for one in self.chain)}" if self.chain else ""
        return f"{self.name} to {self.queue}{via}, {when}: {shown}{chain}"


@dataclass(frozen=True, slots=True)
class Batched:
    """One batch as it was dispatched. A member that is a chain is its first link; a batch may hold batches."""

    connection: str
    id: str
    name: str
    allow_failures: bool
    members: tuple[Pushed | Batched, ...]
    callbacks: Mapping[str, tuple[Pushed, ...]]
    """`before`, `progress`, `then`, `catch` and `finally_`: the jobs of each."""

    def __str__(self) -> str:
        """For a failed assertion: its name and its members."""
        name = f" {self.name!r}" if self.name else ""
        return f"batch{name}: {', '.join(f'({one})' for one in self.members) or 'no members'}"


def batched(connection: str, plan: Plan) -> Batched:
    """A batch as its plan has it."""
    called = {
        name: tuple(one for one in (_link(connection, link) for link in getattr(plan.callbacks, name)) if _is_job(one))
        for name in ("before", "progress", "then", "catch", "finally_")
    }
    members = tuple(_link(connection, link) for link in plan.members)
    return Batched(connection, plan.id, plan.name, plan.allow_failures, members, called)


def _is_job(one: Pushed | Batched) -> TypeGuard[Pushed]:
    return isinstance(one, Pushed)


def _link(connection: str, link: Link) -> Pushed | Batched:
    if link.batch is not None:
        return batched(connection, link.batch)
    raw = bytes(link.job)
    envelope = decode(raw)
    return Pushed(connection, envelope.queue, envelope, raw, link.delay_ms, 0)


def matches(one: Pushed | Batched, shape: Shape | Sequence[Shape]) -> bool:
    """Whether a job, a chain or a batch has the shape."""
    if isinstance(shape, Sequence) and not isinstance(shape, str):
        parts = one.members if isinstance(one, Batched) else (one, *one.chain)
        return len(parts) == len(shape) and all(map(matches, parts, shape))
    return isinstance(one, Pushed) and fits(one, shape)


def shape_text(shape: Shape | Sequence[Shape]) -> str:
    """A shape for a failed assertion: `[order.pay, [mail.send, mail.log]]`."""
    if isinstance(shape, Sequence) and not isinstance(shape, str):
        return f"[{', '.join(map(shape_text, shape))}]"
    return named(shape)


def named(what: What) -> str:
    """The name, or the pattern of names, of what is meant. Raises `TypeError` for what names no job."""
    if isinstance(what, str):
        return what
    if isinstance(what, JobFunction):
        return what.name
    kind = what if isinstance(what, type) else type(what)
    if getattr(kind, "_handler", None) is None:
        raise TypeError(
            f"{kind.__qualname__} names no job; give a class with a handle, one of its jobs, a function made with "
            "@job, or a name."
        )
    return kind.job_name


def fits(pushed: Pushed, what: What, predicate: Predicate | None = None) -> bool:
    """Whether a job is meant."""
    if not fnmatchcase(pushed.name, named(what)):
        return False
    if isinstance(what, Job) and pushed.as_job(type(what)) != what:
        return False
    if predicate is None:
        return True
    return bool(predicate(pushed.as_job(what) if isinstance(what, type) else pushed))
