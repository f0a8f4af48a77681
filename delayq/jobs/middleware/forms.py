"""The forms middleware may have, and what each needs to surround a plain or an async handler.

    class Timed:                                    an object, or its class: then one is made for each attempt
        def handle(self, job, next):                around plain handlers
            return next(job)
        async def ahandle(self, job, next):         around async ones; `async def handle` alone surrounds both
            return await next(job)

    def timed(job, next): ...                       the same as a function, plain or async

    @contextmanager                                 (or asynccontextmanager, or a class of either kind)
    def timed(job):                                 around handlers of both kinds
        yield

`next(job)` gives what the handler returns and raises what it raises: also `JobSignal`s, so who catches `Exception`
should let these pass. Returning without calling it means that the job is done. `raise Snooze("10s")` puts it back and
costs no attempt.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, suppress
from typing import Any, Protocol, TypeAlias

from delayq.core.errors import ConfigError
from delayq.jobs.middleware.running_job import RunningJob

Next: TypeAlias = Callable[[RunningJob], Any]
"""The rest of the way: its result; around an async handler a coroutine to await for it."""


class Handles(Protocol):
    """Middleware as an object."""

    def handle(self, job: RunningJob, next: Next, /) -> Any:
        """Call `next(job)`, or do not."""


class HandlesAsync(Protocol):
    """Middleware for async handlers only."""

    async def ahandle(self, job: RunningJob, next: Next, /) -> Any:
        """Await `next(job)`, or do not."""


Around: TypeAlias = AbstractContextManager[Any, Any] | AbstractAsyncContextManager[Any, Any]
Middleware: TypeAlias = (
    Handles
    | HandlesAsync
    | type[Handles]
    | type[HandlesAsync]
    | Around
    | Callable[[RunningJob], Around]
    | Callable[[RunningJob, Next], Any]
)


class Step(Protocol):
    """One piece of middleware, ready to be called."""

    plain: bool
    """Whether it can surround a plain handler without an event loop."""
    waits: bool
    """Whether it can surround an async handler."""

    def call(self, job: RunningJob, following: Next) -> Any:
        """Around a plain handler."""

    async def acall(self, job: RunningJob, following: Next) -> Any:
        """Around an async handler."""


class HandleStep:
    """A function, or an object or class with `handle` or `ahandle`."""

    def __init__(self, entry: Any) -> None:
        self._entry = entry
        self._is_class = inspect.isclass(entry)
        named = [name for name in ("handle", "ahandle") if callable(getattr(entry, name, None))]
        self._plain = next((name for name in named if not _is_async(getattr(entry, name))), "")
        self._waits = next((name for name in reversed(named) if _is_async(getattr(entry, name))), "")
        self.plain = bool(self._plain) if named else not _is_async(entry)
        self.waits = bool(self._waits) if named else _is_async(entry)

    def __repr__(self) -> str:
        return _shown(self._entry)

    def call(self, job: RunningJob, following: Next) -> Any:
        return self._function(self._plain)(job, following)

    async def acall(self, job: RunningJob, following: Next) -> Any:
        return await self._function(self._waits)(job, following)

    def _function(self, name: str) -> Callable[[RunningJob, Next], Any]:
        entry = self._entry() if self._is_class else self._entry
        function: Callable[[RunningJob, Next], Any] = getattr(entry, name) if name else entry
        return function


class AroundStep:
    """A context manager, or whatever makes one when it is given the job."""

    waits = True

    def __init__(self, entry: Any) -> None:
        self._entry = entry
        self._made = not inspect.isclass(entry) and (hasattr(entry, "__enter__") or hasattr(entry, "__aenter__"))
        kind = hasattr(entry, "__aenter__") or inspect.isasyncgenfunction(inspect.unwrap(entry))
        self.plain = hasattr(entry, "__enter__") or not kind

    def __repr__(self) -> str:
        return _shown(self._entry)

    def call(self, job: RunningJob, following: Next) -> Any:
        around = self._make(job)
        if not hasattr(around, "__enter__"):
            raise ConfigError(
                f"The middleware {self!r} made {type(around).__qualname__}, which a plain handler cannot enter.",
                hint="Make it with asynccontextmanager or a class with __aenter__, so that it is seen beforehand.",
            )
        with around:
            return following(job)

    async def acall(self, job: RunningJob, following: Next) -> Any:
        around = self._make(job)
        if hasattr(around, "__aenter__"):
            async with around:
                return await following(job)
        with around:
            return await following(job)

    def _make(self, job: RunningJob) -> Any:
        around = self._entry if self._made else self._entry(job)
        if not (hasattr(around, "__enter__") or hasattr(around, "__aenter__")):
            raise ConfigError(
                f"The middleware {self!r} answered with {type(around).__qualname__}, which is no context manager.",
                hint="Take (job, next), or decorate it with contextmanager.",
            )
        return around


def step_of(entry: Any) -> Step:
    """What to call for a piece of middleware. Raises `ConfigError` for what is none."""
    if callable(getattr(entry, "handle", None)) or callable(getattr(entry, "ahandle", None)):
        return HandleStep(entry)
    if hasattr(entry, "__enter__") or hasattr(entry, "__aenter__"):
        return AroundStep(entry)
    takes = 0 if inspect.isclass(entry) or not callable(entry) else _takes(entry)
    if takes == 0:
        raise ConfigError(
            f"{_shown(entry)} is no middleware.",
            hint="Give it handle(job, next), or make it a context manager.",
        )
    return HandleStep(entry) if takes == 2 else AroundStep(entry)


def steps_of(entries: Any) -> tuple[Step, ...]:
    """The steps of a list of middleware, outermost first. Raises `ConfigError` for what is no list."""
    if isinstance(entries, str) or not isinstance(entries, Sequence):
        raise ConfigError(f"middleware is {_shown(entries)}.", hint="Give a list: middleware=[Timed()].")
    return tuple(step_of(entry) for entry in entries)


def _takes(function: Callable[..., Any]) -> int:
    """1: it can be called with the job alone, and makes a context manager. 2: it is given the job and what follows."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # written in C, say; nobody knows
        return 1
    for count in (1, 2):
        with suppress(TypeError):
            signature.bind(*range(count))
            return count
    return 0


def _is_async(function: Any) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def _shown(entry: Any) -> str:
    return getattr(entry, "__qualname__", None) or repr(entry)
