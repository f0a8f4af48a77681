"""Handlers of string jobs: the public methods of a class that was registered under a name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from delayq.core.names import check_job_name
from delayq.jobs.context import JobContext
from delayq.jobs.handler import Handler
from delayq.jobs.opened import Opened
from delayq.jobs.options import HandlerOptions

DEFAULT_METHOD = "fire"
_decode = msgspec.json.Decoder().decode


class MethodHandler:
    """The `Handler` of one method. A fresh instance for each attempt."""

    brings_middleware = False
    payload = None

    def __init__(self, name: str, kind: type, method: str, options: HandlerOptions) -> None:
        function = getattr(kind, method)
        self.name = name
        self.options = options
        self.place = f"{kind.__module__}.{kind.__qualname__}.{method}"
        self.is_async = inspect.iscoroutinefunction(function)
        self.hears_failures = callable(getattr(kind, "failed", None))
        self._kind = kind
        self._method = method

    def __repr__(self) -> str:
        return f"<job {self.name!r}: {self.place}>"

    def open(self, data: msgspec.Raw, context: Callable[[], JobContext]) -> Opened:
        """Make an instance and decode the payload. What is no object has no fields."""
        instance, members = self._kind(), _decode(data)
        fields = members if isinstance(members, dict) else {}
        return Opened(fields, partial(getattr(instance, self._method), context(), members), instance)

    def run(self, data: msgspec.Raw, context: Callable[[], JobContext]) -> Any:
        """Call the method with the context and the decoded payload."""
        return getattr(self._kind(), self._method)(context(), _decode(data))

    def failed(self, data: msgspec.Raw, error: BaseException) -> Any:
        """Call the class's `failed` with the decoded payload and the error."""
        return self._kind().failed(_decode(data), error)


class MethodClass:
    """A class whose public methods are handlers."""

    def __init__(self, name: str, kind: type, options: HandlerOptions) -> None:
        self.name = check_job_name(name)
        self.kind = kind
        self.options = options
        self.place = f"{kind.__module__}.{kind.__qualname__}"

    def names(self) -> list[str]:
        """The names of all its jobs, in full."""
        return [f"{self.name}@{method}" for method in dir(self.kind) if self._is_handler(method)]

    def handlers(self) -> list[Handler]:
        """The handlers of all its methods."""
        found = (self.handler(name, name.partition("@")[2]) for name in self.names())
        return [handler for handler in found if handler is not None]

    def handler(self, name: str, method: str) -> Handler | None:
        """The handler of `name`; None when the class has no such method, or only a private one."""
        return MethodHandler(name, self.kind, method, self.options) if self._is_handler(method) else None

    def _is_handler(self, method: str) -> bool:
        return not method.startswith("_") and method != "failed" and callable(getattr(self.kind, method, None))
