"""A job on its way to its handler, as middleware sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from delayq.jobs.context import JobContext
from delayq.jobs.opened import Opened


class RunningJob:
    """One attempt. Its payload has been read; `context` knows id, queue, attempt, headers and tags."""

    def __init__(
        self, name: str, opened: Opened, context: Callable[[], JobContext], tell: Callable[[object], None]
    ) -> None:
        self.name = name
        self.tell = tell
        """Tells an event to those who listen in this process."""
        self._opened = opened
        self._ask = context

    def __repr__(self) -> str:
        return f"<running job {self.name!r}>"

    @property
    def fields(self) -> Mapping[str, Any]:
        """The members of the payload, by name."""
        return self._opened.fields

    @property
    def instance(self) -> Any:
        """The `Job` whose `handle` will run, or the object whose method will; None for a function."""
        return self._opened.instance

    @cached_property
    def context(self) -> JobContext:
        """What the handler may know of its delivery."""
        return self._ask()
