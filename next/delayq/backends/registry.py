"""The drivers: how the settings name them, and how a backend is made.

A connection in the settings file names its driver: `redis`, or the class of another driver as `package.module:Class`.
`backend_of` imports the module when the connection is first used, and calls the class with one argument, the Settings
of the connection. For a driver:

    settings.url           the address, of any form, as a SecretStr; None = not set
    settings.options()     the Options, such as the lease of new queues; a driver gets them only in this way
"""

from importlib import import_module
from typing import Final, cast

from delayq.backends.protocol import Backend
from delayq.core.errors import ConfigError
from delayq.settings.model import Settings

_DRIVERS: Final = {"redis": "delayq.redis.backend:RedisBackend"}
"""The drivers with a short name. The values are text, so that this module imports no driver."""


def backend_of(settings: Settings) -> Backend:
    """Return the backend for these settings. Raises ConfigError if the driver cannot be imported."""
    module, _, name = _DRIVERS.get(settings.driver, settings.driver).partition(":")
    try:
        driver = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"The driver {settings.driver} cannot be imported: {error}.",
            hint="Correct `driver` of the connection, or install the package of the driver.",
            field="driver",
        ) from error
    return cast(Backend, driver(settings))
