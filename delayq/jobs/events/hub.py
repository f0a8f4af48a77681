"""Who listens to which kind of event, in this process."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from delayq.core.errors import ConfigError

log = logging.getLogger("delayq.events")

Function: TypeAlias = Callable[[Any], Any]
Queues: TypeAlias = Callable[[Any], Any]
"""Is given an event, answers with a `Dispatch` (None: it is not interested)."""


class Events:
    """The listeners of one application, by class; those of a base class hear its subclasses too."""

    def __init__(self) -> None:
        self._listeners: dict[type, list[Function]] = {}
        self._late: dict[type, list[Function]] = {}
        self._queued: dict[type, list[Queues]] = {}

    def listen(self, kind: type, listener: Function, *, after_commit: bool = False) -> None:
        """Call `listener` with every event of that kind; `after_commit`: when its transaction commits.

        Raises `ConfigError` for an async one.
        """
        if inspect.iscoroutinefunction(listener):
            raise ConfigError(
                f"The listener {listener!r} is async, and events are told at once, where they happen.",
                hint="Make it a plain function, or let it run as a job with queued_listener.",
            )
        (self._late if after_commit else self._listeners).setdefault(kind, []).append(listener)

    def queue(self, kind: type, queues: Queues) -> None:
        """Let `queues` say which job is dispatched for an event of that kind."""
        self._queued.setdefault(kind, []).append(queues)

    def hears(self, *kinds: type) -> bool:
        """Whether anybody listens to one of these; events nobody hears need not be made."""
        if not self._listeners and not self._late:
            return False
        return any(base in self._listeners or base in self._late for kind in kinds for base in kind.__mro__)

    def waits(self, kind: type) -> bool:
        """Whether anybody listens to events of that kind after the commit."""
        return bool(_of(self._late, kind))

    def tell(self, event: object) -> None:
        """Call who listens, in the order of registration. One that raises is logged and changes nothing.

        Events of delayq itself belong to no transaction: who listens after the commit hears them at once.
        """
        self.tell_now(event)
        self.tell_late(event)

    def tell_now(self, event: object) -> None:
        """Call those who do not wait for a commit."""
        self._tell(self._listeners, event)

    def tell_late(self, event: object) -> None:
        """Call those who do."""
        self._tell(self._late, event)

    def _tell(self, listeners: dict[type, list[Function]], event: object) -> None:
        for listener in _of(listeners, type(event)):
            try:
                listener(event)
            except Exception:
                log.exception("a listener of %s raised; nothing depends on it", type(event).__qualname__)

    def queued(self, kind: type) -> Sequence[Queues]:
        """Who makes jobs of events of that kind."""
        return _of(self._queued, kind)


def _of(listeners: dict[type, list[Any]], kind: type) -> list[Any]:
    if not listeners:
        return []
    return [listener for base in kind.__mro__ for listener in listeners.get(base, ())]
