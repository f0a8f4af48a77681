"""What was handed in while a fake was in force, and which of it is meant: a job, a class, a function, a name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

import msgspec

from delayq.core.durations import format_duration
from delayq.core.envelope import Envelope
from delayq.core.when import format_instant
from delayq.jobs.function import JobFunction
from delayq.jobs.job import Job

What: TypeAlias = type[Job] | Job | JobFunction[..., Any] | str
"""Which jobs are meant: those of a class, one that equals this one, those of a function or of a name ('order.*')."""
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
        return f"{self.name} to {self.queue}{via}, {when}: {shown}"


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
