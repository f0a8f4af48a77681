"""The handlers that a program declares, by job name."""

import inspect
import warnings
from collections.abc import Sequence
from typing import Final

import msgspec

from delayq.core.declared import declare
from delayq.core.errors import InvalidInput, UnknownJob
from delayq.core.names import check_job_name
from delayq.core.payload_checks import add_check
from delayq.jobs.handlers import Handler, MethodHandler, origin_of, refuse_generator
from delayq.jobs.middleware import AnyMiddleware, CheckedMiddleware, check_fits, check_middleware
from delayq.jobs.middleware_stack import HandlerWithMiddleware
from delayq.jobs.model_loader import ModelLoader
from delayq.jobs.options import JobOptions
from delayq.jobs.wrapped import HandlerInside

DEFAULT_METHOD: Final = "fire"


class Registry:
    """Handlers by job name, and classes whose methods are handlers of jobs such as `Mailer@send`."""

    def __init__(self) -> None:
        self._handlers: dict[str, Handler] = {}
        self._classes: dict[str, tuple[type, JobOptions]] = {}
        self._middleware: list[AnyMiddleware] = []
        self._ready: dict[str, Handler] = {}

    def use(self, *middleware: AnyMiddleware) -> None:
        """Add middleware for all jobs; see `use_middleware`."""
        checked = check_middleware(middleware)
        for handler in self._handlers.values():
            _check_fits(checked, handler)
        self._middleware += checked
        self._ready.clear()

    def add(self, handler: Handler) -> None:
        """Register a handler.

        Raises InvalidInput for an invalid name, for a name that another declaration uses, and for middleware that does
        not fit the handler. If the same declaration is executed again, for example in a notebook cell, the new
        declaration replaces the old one, and Python issues a warning.
        """
        check_job_name(handler.name)
        _check_fits([*self._middleware, *handler.options.middleware], handler)
        known = self._handlers.get(handler.name)
        if known is not None:
            self._may_replace(handler.name, known.origin, handler.origin)
        self._handlers[handler.name] = handler
        self._ready.clear()
        declare(handler.name, handler.options.when_sent())

    def add_class(self, name: str, kind: type, options: JobOptions) -> None:
        """Register a class whose methods are handlers; raises InvalidInput as `add`."""
        check_job_name(name)
        for method in dir(kind):
            if _is_handler(kind, method):
                hint = "Remove `yield`, or begin the name of the method with _."
                refuse_generator(getattr(kind, method), hint=hint, unwraps=True)
                handler = MethodHandler(kind, method, name=f"{name}@{method}", options=options)
                _check_fits([*self._middleware, *options.middleware], handler)
        if callable(failed := getattr(kind, "failed", None)):
            refuse_generator(failed)
        if name in self._classes:
            self._may_replace(name, origin_of(self._classes[name][0]), origin_of(kind))
            self._handlers = {known: one for known, one in self._handlers.items() if known.split("@")[0] != name}
        self._classes[name] = (kind, options)
        self._ready.clear()
        declare(name, options.when_sent())
        add_check(name, self._check_sent)

    def _check_sent(self, name: str, raw: msgspec.Raw) -> None:
        if (handler := self.find(name)) is not None:
            self.check_payload(handler, raw)

    def check_payload(self, handler: Handler, raw: msgspec.Raw) -> None:
        """Raise InvalidInput if the middleware of a handler cannot be used with a payload.

        Only methods are checked here. Other handlers were checked when they were declared, because their declarations
        name the members of the payload.
        """
        if handler.payload_members is None and (checked := self._checked(handler.options)):
            data = msgspec.json.decode(raw)
            for one in checked:
                one.check_job(handler.name, handler.options.timeout_ms, list(data) if isinstance(data, dict) else [])

    def check_start(self, name: str, options: JobOptions) -> None:
        """Raise InvalidInput if a worker cannot run a job that the application declares with these options."""
        for one in self._checked(options):
            one.check_start(name)

    def get(self, name: str) -> Handler:
        """Return the handler of a name, with its middleware and the loading of models around it; raises UnknownJob."""
        try:
            return self._ready[name]
        except KeyError:
            handler = self._ready[name] = self._wrapped(self._find_handler(name))
            return handler

    def find(self, name: str) -> Handler | None:
        """Return the handler of a name, or None."""
        try:
            return self.get(name)
        except UnknownJob:
            return None

    def names(self) -> list[str]:
        """Return the sorted names of all handlers and of all classes with handler methods."""
        return sorted({*self._handlers, *self._classes})

    def options_of(self, name: str) -> JobOptions | None:
        """Return the declared options of a job, or None for a name without a handler."""
        handler = self.find(name)
        return None if handler is None else handler.options

    def declared(self) -> dict[str, JobOptions]:
        """Return the declared options of all jobs by job name. Each handler method has its own entry."""
        of_handlers = {name: handler.options for name, handler in self._handlers.items()}
        of_methods = {
            sent: options for name, (kind, options) in self._classes.items() for sent in _names_sent(name, kind)
        }
        return of_handlers | of_methods

    def has_async(self) -> bool:
        """Return True if any handler is a coroutine function."""
        is_async = inspect.iscoroutinefunction
        return any(handler.is_async for handler in self._handlers.values()) or any(
            inspect.getmembers(kind, is_async) for kind, _ in self._classes.values()
        )

    def _checked(self, options: JobOptions) -> list[CheckedMiddleware]:
        return [one for one in (*self._middleware, *options.middleware) if isinstance(one, CheckedMiddleware)]

    def _find_handler(self, name: str) -> Handler:
        if name not in self._handlers:
            self._handlers[name] = self._handler_of_method(name)
        return self._handlers[name]

    def _wrapped(self, handler: Handler) -> Handler:
        middleware = [*self._middleware, *handler.options.middleware]
        if middleware or handler.has_middleware:
            _check_fits(middleware, handler)
            handler = HandlerWithMiddleware(handler, middleware)
        if not handler.model_fields:
            return handler
        loader = ModelLoader(handler.model_fields, job_name=handler.name, on_missing=handler.options.on_missing)
        inside = HandlerInside(handler, loader.loaded, loader.aloaded)
        inside.wants_context = True
        return inside

    def _handler_of_method(self, name: str) -> Handler:
        class_name, _, method = name.partition("@")
        kind, options = self._classes.get(class_name, (None, JobOptions()))
        method = method or DEFAULT_METHOD
        if kind is not None and _is_handler(kind, method):
            return MethodHandler(kind, method, name=name, options=options)
        raise UnknownJob(
            f"No handler is declared for the job {name!r}.", hint="A worker with another release may have the handler."
        )

    def _may_replace(self, name: str, known: str, new: str) -> None:
        if known != new:
            raise InvalidInput(
                f"The job {name!r} is declared twice: by {known} and by {new}.",
                hint="Give each job its own name.",
                field="name",
            )
        warnings.warn(
            f"The job {name!r} is declared again by {new}; the new declaration replaces the old one.", stacklevel=4
        )


def _check_fits(middleware: Sequence[AnyMiddleware], handler: Handler) -> None:
    check_fits(
        middleware,
        handler.name,
        is_async=handler.is_async,
        timeout_ms=handler.options.timeout_ms,
        members=handler.payload_members,
    )


def _is_handler(kind: type, method: str) -> bool:
    """Return True if this method of a class may be a handler."""
    return not method.startswith("_") and method != "failed" and callable(getattr(kind, method, None))


def _names_sent(name: str, kind: type) -> list[str]:
    """Return the job names of all handler methods of a class. The class name alone means the default method."""
    methods = [method for method in dir(kind) if _is_handler(kind, method)]
    return [f"{name}@{method}" for method in methods] + ([name] if DEFAULT_METHOD in methods else [])


registry: Final = Registry()
"""The jobs of this program. Each declaration of a job adds it here."""


def use_middleware(*middleware: AnyMiddleware) -> None:
    """Add middleware for all jobs of this program, around the middleware that jobs declare. The first one is outermost.

    Raises InvalidInput for an object without the method that a declared job needs: `handle`, or `ahandle` for an async
    handler. Call this function in the module that declares the jobs.

        use_middleware(Timed())
    """
    registry.use(*middleware)
