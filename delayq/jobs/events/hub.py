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
        self._queued: dict[type, list[Queues]] = {}

    def listen(self, kind: type, listener: Function) -> None:
        """Call `listener` with every event of that kind. Raises `ConfigError` for an async one."""
        if inspect.iscoroutinefunction(listener):
            raise ConfigError(
                f"The listener {listener!r} is async, and events are told at once, where they happen.",
                hint="Make it a plain function, or let it run as a job with queued_listener.",
            )
        self._listeners.setdefault(kind, []).append(listener)

    def queue(self, kind: type, queues: Queues) -> None:
        """Let `queues` say which job is dispatched for an event of that kind."""
        self._queued.setdefault(kind, []).append(queues)

    def hears(self, *kinds: type) -> bool:
        """Whether anybody listens to one of these; events nobody hears need not be made."""
        return bool(self._listeners) and any(base in self._listeners for kind in kinds for base in kind.__mro__)

    def tell(self, event: object) -> None:
        """Call who listens, in the order of registration. One that raises is logged and changes nothing."""
        for listener in _of(self._listeners, type(event)):
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
