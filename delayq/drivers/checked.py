"""Drivers of other people, looked at where they come in: what is no driver is one sentence, and not an error later.

a factory       something that can be called with (name, settings, options)
what it makes   a Connection, or a Backend whose `make` takes `answer_ms`
its broker      has every verb of `Broker`, and those that its capabilities promise
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final, TypeAlias

from delayq.core.errors import ConfigError, DelayqError
from delayq.core.options import Options
from delayq.core.shown import shown
from delayq.drivers.broker import Broker, Findable, Moves, Shows, Switched
from delayq.drivers.capabilities import Capabilities
from delayq.drivers.connection import Connection
from delayq.drivers.serving.backend import Backend, MakeBroker
from delayq.settings.tables import ConnectionSettings

Factory: TypeAlias = Callable[[str, ConnectionSettings, Options], Connection | Backend]
"""Makes a connection: its name, its settings (`options` holds what only this driver knows), the engine's options.

Or the backend of one: then the connection is made around it, and workers can serve it.
"""

_PAGE: Final = 'docs/connections.md, "Your own", says what a driver is.'
_PROMISED: Final = (
    (("cancel", "reschedule", "run_now"), Findable),
    (("wait",), Shows),
    (("mover",), Moves),
    (("pause",), Switched),
)
"""Capabilities, and the protocol that a broker follows that has one of them."""


def checked(driver: str, factory: object, origin: str) -> Factory:
    """`factory` with a look at all it makes; `origin` says where it comes from. Raises `ConfigError` for no factory."""
    who = f"The driver {driver!r} ({origin})"
    if not callable(factory):
        raise ConfigError(f"{who} is {shown(factory)}, which cannot be called.", hint=_PAGE)
    make: Callable[..., object] = factory
    if not _takes(make, "name", ConnectionSettings(), Options()):
        raise ConfigError(f"{who} does not take (name, settings, options).", hint=_PAGE)

    def make_checked(name: str, given: ConnectionSettings, options: Options) -> Connection | Backend:
        of = f"{who}, asked for the connection {name!r},"
        made = _called(of, lambda: make(name, given, options))
        if isinstance(made, Backend):
            return _backend(of, made)
        lacking = _lacking(made, Connection)
        if lacking or not isinstance(getattr(made, "name", None), str):
            raise ConfigError(
                f"{of} made {_kind(made)}, which is no Backend, and no Connection: it has no "
                f"{', '.join(lacking or ['name'])}.",
                hint=_PAGE,
            )
        connection: Any = made
        return connection  # type: ignore[no-any-return]  # it has every verb of one

    return make_checked


def _backend(of: str, made: Backend) -> Backend:
    """The same, whose brokers are looked at when they are made."""
    make: Any = made.make
    if not isinstance(made.capabilities, Capabilities):
        raise ConfigError(f"{of} made a Backend whose capabilities are {_kind(made.capabilities)}.", hint=_PAGE)
    if not callable(make) or not _takes(make, answer_ms=None):
        raise ConfigError(f"{of} made a Backend whose make does not take (*, answer_ms=None).", hint=_PAGE)
    if made.failed is not None and not callable(made.failed):
        raise ConfigError(f"{of} made a Backend whose failed is {_kind(made.failed)}, not a function.", hint=_PAGE)
    return replace(made, make=_make_checked(of, made))


def _make_checked(of: str, backend: Backend) -> MakeBroker:
    def make(*, answer_ms: int | None = None) -> Broker:
        broker: Broker = _called(of, lambda: backend.make(answer_ms=answer_ms))
        wanted: list[type] = [Broker]
        wanted += [kind for words, kind in _PROMISED if any(getattr(backend.capabilities, word) for word in words)]
        for kind in wanted:
            if lacking := _lacking(broker, kind):
                raise ConfigError(
                    f"{of} made {_kind(broker)} as its broker, which has no {', '.join(lacking)}.", hint=_PAGE
                )
        return broker

    return make


def _called(of: str, make: Callable[[], Any]) -> Any:
    try:
        return make()
    except DelayqError:
        raise
    except Exception as error:
        raise ConfigError(
            f"{of} failed: {type(error).__name__}: {error}.", hint="Mend or leave out that driver."
        ) from error


def _takes(function: Callable[..., object], *args: object, **named: object) -> bool:
    """Whether it can be called so; what does not tell (a function in C) is believed."""
    try:
        inspect.signature(function).bind(*args, **named)
    except TypeError:
        return False
    except ValueError:
        return True
    return True


def _lacking(made: object, protocol: type) -> list[str]:
    """The verbs of the protocol that it has not."""
    return [verb for verb in _verbs(protocol) if not callable(getattr(made, verb, None))]


def _verbs(protocol: type) -> Iterable[str]:
    return [name for name, value in vars(protocol).items() if inspect.isfunction(value) and not name.startswith("_")]


def _kind(made: object) -> str:
    if made is None:
        return "nothing"
    name = type(made).__name__
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"
