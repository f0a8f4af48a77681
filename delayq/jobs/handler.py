"""What a worker needs of whatever handles the jobs of one name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from delayq.jobs.context import JobContext
from delayq.jobs.opened import Opened
from delayq.jobs.options import HandlerOptions
from delayq.jobs.payload import Payload


class Handler(Protocol):
    """A function, a `Job` class, a method of a class, or something that wraps one of these.

    Everything a job goes through on the worker goes through `run` and `failed`. So a feature that surrounds handlers
    is a `Handler` that holds another and stands in its place, as a `StandIn` (`middleware.Surrounded` is one).
    """

    @property
    def name(self) -> str:
        """The name of the jobs it handles."""

    @property
    def options(self) -> HandlerOptions:
        """What it declares."""

    @property
    def place(self) -> str:
        """Where it was written; the same place again is the same handler."""

    @property
    def is_async(self) -> bool:
        """Whether `run` answers with a coroutine; known before the call, so that a worker can choose where to run."""

    @property
    def hears_failures(self) -> bool:
        """Whether `failed` does anything."""

    @property
    def brings_middleware(self) -> bool:
        """Whether the job itself may answer with middleware, once its payload is read."""

    @property
    def payload(self) -> Payload | None:
        """Its fields; None for one that takes any data."""

    def open(self, data: msgspec.Raw, context: Callable[[], JobContext]) -> Opened:
        """Read the payload, for somebody who wants to do something before the handler is called.

        Raises `InvalidPayload`.
        """

    def run(self, data: msgspec.Raw, context: Callable[[], JobContext]) -> Any:
        """One attempt, as `open(...).call()`: its result, or a coroutine to await for it.

        Raises what the handler raises, and `InvalidPayload` when the payload does not fit. `context` is only asked
        when wanted.
        """

    def failed(self, data: msgspec.Raw, error: BaseException) -> Any:
        """The job has failed for good; nothing, or a coroutine to await."""
