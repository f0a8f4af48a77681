"""The sentences that send jobs. Each ends with a verb, and nothing happens before it.

    CloseOrder(order_id=42).dispatch(delay="15m")
    CloseOrder(order_id=42).on_queue("vip").delay("15m").dispatch()
    close_order.job(order_id=42).dispatch()                 a function made a job with @job
    dispatch("order.close", {"order_id": 42}, delay="15m")  by name, where the class is not known
    dispatch_many([CloseOrder(order_id=n) for n in orders])

The verbs: `dispatch` and `adispatch` hand a job in and answer with a `JobRef`; `dispatch_sync` and `adispatch_sync`
run it here and answer with a `Ran`; `dispatch_after_response` keeps it until a web response is sent.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import wraps
from types import MethodType
from typing import Any, TypeVar, Unpack, cast

from delayq.core import envelope as envelopes
from delayq.core.spec import Delay, Instant, check_headers
from delayq.core.states import State
from delayq.core.views import Fate, JobRef
from delayq.drivers.deferred import defer
from delayq.drivers.sync import Ran
from delayq.jobs.committing import joining
from delayq.jobs.current import current_manager
from delayq.jobs.message import Dispatchable, Message, PendingDispatch, dispatch_of
from delayq.jobs.options import SAYABLE, Dispatched
from delayq.jobs.running import LocalRunner, envelope_of
from delayq.jobs.sending import asend, compose, grouped, send, told
from delayq.jobs.unsent import Unsent

F = TypeVar("F", bound=Callable[..., Any])


class _OfAJob:
    """A method that needs a job. Called on the class, it says what to write instead."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.__doc__ = function.__doc__

    def __get__(self, job: object, kind: type) -> Callable[..., Any]:
        if job is not None:
            return MethodType(self.function, job)

        @wraps(self.function)
        def of_the_class(*given: Any, **said: Any) -> Any:
            if given and isinstance(given[0], kind):
                return self.function(*given, **said)
            fields = ", ".join(f"{name}=..." for name in said if name not in SAYABLE) or "..."
            raise TypeError(
                f"{kind.__name__}.{self.function.__name__} was called on the class, which is no job yet; make one with "
                f"its fields and send that: {kind.__name__}({fields}).dispatch()."
            )

        return of_the_class


def _of_a_job(function: F) -> F:
    return cast(F, _OfAJob(function))  # what it gives for a job is the method


class Sendable(Dispatchable):
    """What can be dispatched: a job, or a `Dispatch` that says more about how."""

    @abstractmethod
    def _dispatch(self) -> Dispatch:
        """The job, and what is said of its way so far."""

    def _fluent(self) -> Dispatch:
        """As `_dispatch`, for a method that says more: what comes of it warns when it is never sent."""
        dispatch = self._dispatch()
        if dispatch.unsent is None:
            unsent = Unsent(f"A dispatch of the job {dispatch.message.name!r}")
            dispatch = Dispatch(dispatch.message, dispatch.said, unsent)
        return dispatch

    # -- how ---------------------------------------------------------------------------------------------------------

    @_of_a_job
    def on_connection(self, connection: str) -> Dispatch:
        """Over this connection."""
        return self._fluent().having(connection=connection)

    @_of_a_job
    def on_queue(self, queue: str) -> Dispatch:
        """To this queue."""
        return self._fluent().having(queue=queue)

    @_of_a_job
    def delay(self, delay: Delay | Instant) -> Dispatch:
        """After this long ('15m', a timedelta), or at this time (RFC 3339, an aware datetime)."""
        if isinstance(delay, timedelta) or (isinstance(delay, str) and "-" not in delay):
            return self._fluent().having(delay=delay, at=None)
        return self._fluent().having(delay=None, at=delay)

    @_of_a_job
    def without_delay(self) -> Dispatch:
        """Now, whatever delay the job declares."""
        return self._fluent().having(delay="0s", at=None)

    @_of_a_job
    def after_commit(self, wait: bool = True) -> Dispatch:
        """When the database transaction under way commits, and never if it is rolled back; `wait=False`: at once."""
        return self._fluent().having(after_commit=wait)

    @_of_a_job
    def within(self, session: Any) -> Dispatch:
        """Belonging to the transaction of this session: sent after its commit; to an outbox, written in it."""
        return self._fluent().having(within=session)

    @_of_a_job
    def with_headers(self, headers: Mapping[str, str]) -> Dispatch:
        """With these headers, besides those given before."""
        checked = check_headers(headers)
        dispatch = self._fluent()
        return dispatch.having(headers={**(dispatch.said.get("headers") or {}), **checked})

    @_of_a_job
    def tags(self, *tags: str) -> Dispatch:
        """With these tags, besides those declared and those given before."""
        dispatch = self._fluent()
        return dispatch.having(tags=(*(dispatch.said.get("tags") or ()), *tags))

    # -- verbs -------------------------------------------------------------------------------------------------------

    @_of_a_job
    def dispatch(self, **said: Unpack[Dispatched]) -> JobRef:
        """Hand the job in; the `JobRef` says where it is and what became of it (`outcome`).

        Raises `InvalidInput` (nothing sent), `Conflict`, `BackendError`, `ConfigError`; on a sync connection also
        what the job raises.
        """
        dispatch = self._used().having(**said)
        return send(dispatch.message, dispatch.said, current_manager())

    @_of_a_job
    async def adispatch(self, **said: Unpack[Dispatched]) -> JobRef:
        """Hand the job in, awaited. Returns the `JobRef`: where the job is and what became of it (`outcome`).

        Raises `InvalidInput` (nothing sent), `Conflict`, `BackendError`, `ConfigError`; on a sync connection also
        what the job raises.
        """
        dispatch = self._used().having(**said)
        return await asend(dispatch.message, dispatch.said, current_manager())

    @_of_a_job
    def dispatch_sync(self, **said: Unpack[Dispatched]) -> Ran:
        """Run the job here and now: to JSON, back, through its handler, `decide` and `failed`, in one attempt.

        A delay is not waited for. Raises the error of a job that fails; `Ran` has the result and the outcome of
        any other. Options of the queue (`unique`, `on_conflict`) have no meaning here.
        """
        envelope = self._envelope(said)
        ran = Ran(None) if isinstance(envelope, JobRef) else LocalRunner(current_manager).run(envelope)
        _ = ran.fate  # raises what the job failed with
        return ran

    @_of_a_job
    async def adispatch_sync(self, **said: Unpack[Dispatched]) -> Ran:
        """Run the job now, in one attempt: an async handler in this event loop, a plain one in a thread beside it.

        Returns and raises what `dispatch_sync` does; a delay is not waited for.
        """
        envelope = self._envelope(said)
        ran = Ran(None) if isinstance(envelope, JobRef) else await LocalRunner(current_manager).arun(envelope)
        _ = ran.fate
        return ran

    @_of_a_job
    def dispatch_after_response(self, **said: Unpack[Dispatched]) -> JobRef:
        """Run the job in this process once the response under way is sent, as `dispatch_sync`.

        Not durable: the job lives in this process until then. Raises `ConfigError` outside of a request that one of
        the middlewares in `delayq.jobs.after_response` looks after.
        """
        envelope = self._envelope(said)
        if isinstance(envelope, JobRef):
            return envelope
        defer(envelope)
        known = envelopes.decode(envelope)
        return JobRef(known.id, known.queue, State.ABSENT, None, Fate.AFTER_RESPONSE, known.name)

    def _envelope(self, said: Dispatched) -> bytes | JobRef:
        """The bytes that would travel; or the answer, when the job vetoed itself."""
        dispatch, manager = self._used().having(**said), current_manager()
        parcel = compose(dispatch.message, dispatch.said, manager)
        return parcel if isinstance(parcel, JobRef) else envelope_of(parcel, manager.settings.options())


class Dispatch(PendingDispatch, Sendable):
    """A job and how to send it. Immutable: every method that says more answers with another one.

    One that was said more about, and is dropped without a verb, gives a `ResourceWarning`.
    """

    __slots__ = ()


def named(name: str, data: Any = None) -> Dispatch:
    """A job by its name alone. Its class is not asked, even where it is known: routes say where such a job goes."""
    return Dispatch(Message(name, lambda: data))


def dispatch(name: str, data: Any = None, **said: Unpack[Dispatched]) -> JobRef:
    """Hand in a job by its name, as `Sendable.dispatch` does."""
    return named(name, data).dispatch(**said)


async def adispatch(name: str, data: Any = None, **said: Unpack[Dispatched]) -> JobRef:
    """Hand in a job by its name, awaited. Takes options, returns and raises as `Sendable.adispatch`."""
    return await named(name, data).adispatch(**said)


def dispatch_many(jobs: Iterable[Sendable]) -> list[JobRef]:
    """Hand in many jobs, one script call for each chunk of a queue; an answer for each, in order.

    All are checked before the first is sent; those that wait for a commit wait. They are not one transaction.
    """
    manager = current_manager()
    answers, groups = grouped(_messages(jobs), manager)
    for first, some in groups.values():
        connection = manager.connection(first.connection)
        with joining(first):
            refs = connection.schedule_many([spec for _, spec in some], first.on_conflict)
        for (number, spec), ref in zip(some, refs, strict=True):
            answers[number] = told(ref, connection.name, spec)
    return [ref for ref in answers if ref is not None]


async def adispatch_many(jobs: Iterable[Sendable]) -> list[JobRef]:
    """Hand in many jobs, awaited: one script call for each chunk of a queue. Returns an answer for each, in order.

    All are checked before the first is sent; those that wait for a commit wait. They are not one transaction. Raises
    as `dispatch`.
    """
    manager = current_manager()
    answers, groups = grouped(_messages(jobs), manager)
    for first, some in groups.values():
        connection = manager.connection(first.connection)
        with joining(first):
            refs = await connection.aschedule_many([spec for _, spec in some], first.on_conflict)
        for (number, spec), ref in zip(some, refs, strict=True):
            answers[number] = told(ref, connection.name, spec)
    return [ref for ref in answers if ref is not None]


def _messages(jobs: Iterable[Sendable]) -> Sequence[tuple[Message, Dispatched]]:
    dispatches = [dispatch_of(job) for job in jobs]
    return [(one.message, one.said) for one in dispatches]
