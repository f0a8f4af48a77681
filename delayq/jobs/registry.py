"""Which handler answers to which job name."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TypeAlias

from delayq.core.errors import ConfigError, UnknownJob
from delayq.core.limit_names import check_limit
from delayq.core.shards import queue_of
from delayq.jobs.codecs import Codecs
from delayq.jobs.events.hub import Events
from delayq.jobs.handler import Handler
from delayq.jobs.methods import DEFAULT_METHOD, MethodClass
from delayq.jobs.middleware.forms import Middleware, Step, steps_of
from delayq.jobs.middleware.rates import Definition, checked_definition
from delayq.jobs.middleware.surrounded import surround
from delayq.jobs.notifications.channel import Channel
from delayq.jobs.references.models import Models
from delayq.jobs.references.referring import refer

Gate: TypeAlias = Callable[[], object]
"""Says whether workers may fetch: `False` is "not now", anything else is yes."""


class Registry:
    """Handlers by job name. Names come from here and never from a payload's import path."""

    def __init__(self) -> None:
        self.codecs = Codecs()
        self.events = Events()
        self.channels: dict[str, Channel] = {}
        self.declaring: dict[str, Handler] = {}
        """Those whose options count where a job is sent, for clients that schedule by name."""
        self._handlers: dict[str, Handler] = {}
        self._classes: dict[str, MethodClass] = {}
        self._around: list[Step] = []
        self.outermost: Callable[[Handler], Handler] | None = None
        """Stands around each handler with all that surrounds it; set before the first job is looked up."""
        self._ready: dict[str, Handler] = {}
        self._gates: dict[str, Gate] = {}
        self._limits: dict[str, Definition] = {}
        self._whole: dict[str, Handler] = {}
        self._whole_ready: dict[str, Handler] = {}

    def add(self, handler: Handler) -> None:
        """Register a handler; a second, different one for the same name is refused."""
        known = self._handlers.get(handler.name)
        if known is not None and not _same(known, handler):
            raise ConfigError(f"Two handlers are registered for {handler.name!r}: {known!r} and {handler!r}.")
        surround(handler, self._around, self.events.tell)
        self._handlers[handler.name] = handler
        self._ready.pop(handler.name, None)
        self._note(handler)

    def use(self, *middleware: Middleware) -> None:
        """Surround every handler with these, outermost first, inside of those given before.

        Raises `ConfigError` for what is no middleware, or cannot surround one of the handlers.
        """
        around = [*self._around, *steps_of(middleware)]
        methods = (one for kind in self._classes.values() for one in kind.handlers())
        for handler in (*self._handlers.values(), *methods, *self._whole.values()):
            surround(handler, around, self.events.tell)
        self._around = around
        self._ready.clear()
        self._whole_ready.clear()

    def add_methods(self, kind: MethodClass) -> None:
        """Register a class for string jobs; a second, different one of the same name is refused."""
        known = self._classes.get(kind.name)
        if known is not None and known.place != kind.place:
            raise ConfigError(f"Two classes are registered as {kind.name!r}: {known.kind!r} and {kind.kind!r}.")
        for handler in kind.handlers():
            surround(handler, self._around, self.events.tell)
            self._note(handler)
        self._classes[kind.name] = kind

    def add_queue(self, queue: str, handler: Handler) -> None:
        """Register a handler for every job of a queue, whatever it is called. Raises as `add`."""
        known = self._whole.get(queue)
        if known is not None and not _same(known, handler):
            raise ConfigError(f"Two handlers are registered for the queue {queue!r}: {known!r} and {handler!r}.")
        surround(handler, self._around, self.events.tell)
        self._whole[queue] = handler
        self._whole_ready.pop(queue, None)

    def find(self, name: str, queue: str) -> Handler:
        """The handler of the jobs of that name in that queue (or shard of one); raises `UnknownJob`."""
        if self._whole and (handler := self._whole.get(queue := queue_of(queue))) is not None:
            ready = self._whole_ready.get(queue)
            if ready is None:
                ready = self._whole_ready[queue] = self._outer(surround(handler, self._around, self.events.tell))
            return ready
        return self._ready.get(name) or self._made_ready(name)

    def get(self, name: str) -> Handler:
        """The handler of that name, with its middleware around it; raises `UnknownJob`."""
        return self._ready.get(name) or self._made_ready(name)

    def _made_ready(self, name: str) -> Handler:
        handler = self._handlers.get(name) or self._method(name)
        if handler is None:
            known = ", ".join(self.names()) or "none"
            raise UnknownJob(
                f"No handler is registered for {name!r}; known here: {known}.",
                hint="Is the module that has it imported? DELAYQ_APP names it.",
            )
        ready = surround(handler, self._around, self.events.tell)
        ready = refer(handler, ready, self.events.tell) if self.codecs.known else ready
        ready = self._ready[name] = self._outer(ready)
        return ready

    def _outer(self, handler: Handler) -> Handler:
        return handler if self.outermost is None else self.outermost(handler)

    def add_models(self, models: Models) -> None:
        """Let these models be fields of jobs, also of those registered before."""
        self.codecs.add_models(models)
        self._ready.clear()

    def add_gate(self, gate: Gate) -> None:
        """Register a gate; the same function seen twice (a module imported again) counts once."""
        place = f"{getattr(gate, '__module__', '')}.{getattr(gate, '__qualname__', id(gate))}"
        self._gates[place] = gate

    def add_limit(self, name: str, rates: Definition) -> None:
        """Define a rate limit; a definition that is there is replaced. Raises as `use_limit`."""
        self._limits[check_limit(name)] = checked_definition(name, rates)

    def limit(self, name: str) -> Definition:
        """How a rate limit is defined; raises `ConfigError` when it is not."""
        if name not in self._limits:
            known = ", ".join(sorted(self._limits)) or "none"
            raise ConfigError(
                f"No rate limit {name!r} is defined; known here: {known}.", hint="Use use_limit for that."
            )
        return self._limits[name]

    @property
    def gates(self) -> tuple[Gate, ...]:
        """All gates, in the order they were registered."""
        return tuple(self._gates.values())

    def names(self) -> tuple[str, ...]:
        """All names, sorted."""
        methods = [name for kind in self._classes.values() for name in kind.names()]
        return tuple(sorted({*self._handlers, *methods}))

    def queues(self) -> tuple[str, ...]:
        """The queues the handlers name, in the order of their first mention; then those that have one for all."""
        named = [handler.options.queue for handler in self._handlers.values()]
        named += [kind.options.queue for kind in self._classes.values()]
        return tuple(dict.fromkeys([*(queue for queue in named if queue), *self._whole]))

    @property
    def whole_queues(self) -> tuple[str, ...]:
        """The queues that have one handler for all their jobs."""
        return tuple(self._whole)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is handled at all."""
        return not self._whole and not self.names()

    def _note(self, handler: Handler) -> None:
        if handler.options.counts_when_sent:
            self.declaring[handler.name] = handler
        else:
            self.declaring.pop(handler.name, None)

    def _method(self, name: str) -> Handler | None:
        """The handler of a string job, kept once it is found."""
        owner, _, method = name.partition("@")
        kind = self._classes.get(owner)
        handler = kind.handler(name, method or DEFAULT_METHOD) if kind else None
        if handler is not None:
            self._handlers[name] = handler
        return handler


def _same(one: Handler, other: Handler) -> bool:
    """The same function seen twice (a module imported again) is no conflict."""
    return one.place == other.place


_default = Registry()
_current: ContextVar[Registry] = ContextVar("delayq_registry")


def use_middleware(*middleware: Middleware) -> None:
    """Surround all handlers of the current registry; see `Registry.use`."""
    current().use(*middleware)


def use_limit(name: str, rates: Definition) -> None:
    """Define a rate limit in the current registry, for `RateLimited(name)`.

    `rates`: a `RateLimit`, a list of them that must all let a job through, None (unlimited), or a function that is
    given the `RunningJob` and answers with one of these. Raises `InvalidName`, and `ConfigError` for anything else.
    """
    current().add_limit(name, rates)


def use_models(*models: Models) -> None:
    """Let models be fields of the jobs of the current registry; they travel by name and key.

    `delayq.contrib` has those of SQLAlchemy and Django; `Models` is what any other kind has to know.
    """
    for one in models:
        current().add_models(one)


def current() -> Registry:
    """The registry that `@job` fills."""
    return _current.get(_default)


def module_of(name: str) -> str:
    """The module that has to be imported for the handler of that name to be known.

    Raises `UnknownJob`, and `ConfigError` for one that stands in a script.
    """
    words = current().get(name).place.partition(":")[0].split(".")
    candidates = (".".join(words[:n]) for n in range(len(words), 0, -1))
    module = next((one for one in candidates if one in sys.modules), "")
    if module == "__main__":  # known by its own name when it was started with `python -m`
        spec = getattr(sys.modules[module], "__spec__", None)
        module = spec.name if spec is not None else ""
    if not module:
        raise ConfigError(
            f"The handler of {name!r} stands where no other process can import it.",
            hint='Move it into a module, or name one that registers it: app = "shop.jobs" of the connection.',
        )
    return module


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
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        cause = f"there is no module {missing!r}" if missing else str(error)
        file = module.endswith(".py") or "/" in module
        hint = (
            "Name the module, as in `import shop.jobs`, not its file." if file else f"It is looked for from {here} on."
        )
        raise ConfigError(f"--app {module}: {cause}.", hint=hint) from error
    return current()
