"""The drivers, by name. A driver is imported when a connection uses it, so that others cost nothing."""

from importlib import import_module
from typing import Final, cast

from delayq.backends.protocol import Backend
from delayq.settings.model import Settings

_DRIVERS: Final = {"redis": ("delayq.redis.backend", "RedisBackend")}
"""The module and the class of each driver, as text: no import leads from here to a driver."""


def backend_of(settings: Settings) -> Backend:
    """Return the backend that these settings choose. Raises ConfigError."""
    module, name = _DRIVERS[settings.driver]
    return cast(Backend, getattr(import_module(module), name)(settings))
