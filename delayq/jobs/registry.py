"""Which handler answers to which job name."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TypeAlias

from delayq.core.errors import ConfigError, UnknownJob
from delayq.jobs.function import JobFunction, place_of

Gate: TypeAlias = Callable[[], object]
"""Says whether workers may fetch: `False` is "not now", anything else is yes."""


class Registry:
    """Handlers by job name. Names come from here and never from a payload's import path."""

    def __init__(self) -> None:
        self._handlers: dict[str, JobFunction[..., Any]] = {}
        self._gates: dict[str, Gate] = {}

    def add(self, handler: JobFunction[..., Any]) -> None:
        """Register a handler; a second, different one for the same name is refused."""
        known = self._handlers.get(handler.name)
        if known is not None and not _same(known, handler):
            raise ConfigError(f"Two handlers are registered for {handler.name!r}: {known!r} and {handler!r}.")
        self._handlers[handler.name] = handler

    def get(self, name: str) -> JobFunction[..., Any]:
        """The handler of that name; raises `UnknownJob`."""
        handler = self._handlers.get(name)
        if handler is None:
            known = ", ".join(sorted(self._handlers)) or "none"
            raise UnknownJob(f"No handler is registered for {name!r}; known here: {known}.")
        return handler

    def add_gate(self, gate: Gate) -> None:
        """Register a gate; the same function seen twice (a module imported again) counts once."""
        place = f"{getattr(gate, '__module__', '')}.{getattr(gate, '__qualname__', id(gate))}"
        self._gates[place] = gate

    @property
    def gates(self) -> tuple[Gate, ...]:
        """All gates, in the order they were registered."""
        return tuple(self._gates.values())

    def names(self) -> tuple[str, ...]:
        """All names, sorted."""
        return tuple(sorted(self._handlers))

    def queues(self) -> tuple[str, ...]:
        """The queues the handlers name, in the order of their first mention."""
        named = (handler.options.queue for handler in self._handlers.values())
        return tuple(dict.fromkeys(queue for queue in named if queue))


def _same(one: JobFunction[..., Any], other: JobFunction[..., Any]) -> bool:
    """The same function seen twice (a module imported again) is no conflict."""
    return place_of(one.function) == place_of(other.function)


_default = Registry()
_current: ContextVar[Registry] = ContextVar("delayq_registry")


def current() -> Registry:
    """The registry that `@job` fills."""
    return _current.get(_default)


@contextmanager
def using(registry: Registry) -> Iterator[Registry]:
    """Let `@job` fill another registry for a while."""
    token = _current.set(registry)
    try:
        yield registry
    finally:
        _current.reset(token)


def load_app(module: str) -> Registry:
    """Import the module that registers an application's jobs; the working directory is searched first.

    Raises `ConfigError` when it cannot be imported.
    """
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        importlib.import_module(module)
    except ImportError as error:
        missing = getattr(error, "name", None)
        cause = f"there is no module {missing!r}" if missing else str(error)
        file = module.endswith(".py") or "/" in module
        hint = (
            "Name the module, as in `import shop.jobs`, not its file." if file else f"It is looked for from {here} on."
        )
        raise ConfigError(f"--app {module}: {cause}.", hint=hint) from error
    return current()
