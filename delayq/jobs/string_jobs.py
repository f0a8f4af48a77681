"""String jobs: `"Mailer@send"` names a method of a class that was registered as `Mailer`.

    @handles("Mailer")
    class Mailer:
        def send(self, context: JobContext, data: dict[str, Any]) -> None: ...
        def failed(self, data: Any, error: BaseException) -> None: ...      # optional

    dispatch("Mailer@send", {"to": "ann@example.org"})

`"Mailer"` alone means `"Mailer@fire"`. Only classes registered here are looked at, and of these only public methods:
a name in a payload is never an import path. Returning is success; the method says anything else with a signal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, Unpack

from delayq.core.errors import ConfigError
from delayq.jobs.methods import MethodClass
from delayq.jobs.options import Declared, HandlerOptions, declare
from delayq.jobs.registry import current

K = TypeVar("K", bound=type)


def handles(name: str, **declared: Unpack[Declared]) -> Callable[[K], K]:
    """Register a class as the one that string jobs `name@method` mean. The options hold for all its methods."""
    if "@" in name:
        raise ConfigError(f"{name!r} cannot name a class of handlers.", hint="Leave out the @ and what follows it.")
    options = declare(name, HandlerOptions(), declared)

    def register(kind: K) -> K:
        current().add_methods(MethodClass(name, kind, options))
        return kind

    return register
