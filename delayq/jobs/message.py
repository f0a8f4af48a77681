"""A job on its way from its declaration to a connection, as values."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self, Unpack

from delayq.core.errors import InvalidInput
from delayq.core.shown import shown
from delayq.core.spec import JobSpec
from delayq.core.states import OnConflict
from delayq.jobs.options import SAYABLE, Dispatched, HandlerOptions, refuse_unsayable
from delayq.jobs.unsent import Unsent


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
    session: Any
    """What its transaction is known by: it waits for that one's commit, or is written in it. None: no such thing."""


class Dispatchable(ABC):
    """A job that can be sent, alone or as a part of a chain or a batch."""

    __slots__ = ()

    @abstractmethod
    def _dispatch(self) -> PendingDispatch:
        """The job, and the options given for this dispatch so far."""

    def _used(self) -> PendingDispatch:
        """As `_dispatch`, for a call that sends the job or makes it a part of a chain or a batch."""
        dispatch = self._dispatch()
        if dispatch.unsent is not None:
            dispatch.unsent.used = True
        return dispatch


class PendingDispatch(Dispatchable):
    """A message and the options of its dispatch. Immutable: `having` returns another one."""

    __slots__ = ("message", "said", "unsent")

    def __init__(self, message: Message, said: Dispatched | None = None, unsent: Unsent | None = None) -> None:
        self.message = message
        self.said: Dispatched = {} if said is None else said
        self.unsent = unsent

    def __repr__(self) -> str:
        return f"<dispatch of {self.message.name!r}, not sent: {dict(self.said)!r}>"

    def having(self, **said: Unpack[Dispatched]) -> Self:
        """Return a copy with more options. Raises `InvalidInput` for an unknown option."""
        if not said:
            return self
        if not said.keys() <= SAYABLE:
            self._used()
            refuse_unsayable(self.message.name, said)
        return type(self)(self.message, {**self.said, **said}, self.unsent)

    def _dispatch(self) -> Self:
        return self


def dispatch_of(job: Dispatchable) -> PendingDispatch:
    """Return the message of a job and its dispatch options. Raises `InvalidInput` for an object that is not a job."""
    given: object = job
    if not isinstance(given, Dispatchable):
        kind = f"The class {given.__qualname__}" if isinstance(given, type) else shown(given)
        raise InvalidInput(f"{kind} is no job.", hint="Give instances of Job classes, or f.job(...) of a function.")
    return given._used()
