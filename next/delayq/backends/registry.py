"""The drivers, by name. A driver is imported when a connection first uses it, so that unused drivers cost nothing."""

from importlib import import_module
from typing import Final, cast

from delayq.backends.protocol import Backend
from delayq.settings.model import Settings

_DRIVERS: Final = {"redis": ("delayq.redis.backend", "RedisBackend")}
"""The module and the class of each driver. They are text, so that this module imports no driver."""


def backend_of(settings: Settings) -> Backend:
    """Return the backend for these settings."""
    module, name = _DRIVERS[settings.driver]
    return cast(Backend, getattr(import_module(module), name)(settings))
