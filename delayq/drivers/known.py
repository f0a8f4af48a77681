"""The drivers that come with delayq, by name, and where they are. A module is imported when its driver is first used.

A driver's module has `CAPABILITIES` and, if its backend hands out reservations, `backend(name, given, options)`: see
`delayq.drivers.broker`. Drivers of other packages are found by the entry points of the group `delayq.drivers`.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType, ModuleType
from typing import Final

from delayq.core.errors import ConfigError

BROKERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "database": "delayq.drivers.database.backend",
        "laravel_redis": "delayq.drivers.laravel_redis",
        "beanstalkd": "delayq.drivers.beanstalkd",
        "sqs": "delayq.drivers.sqs",
    }
)
"""Those that hand out reservations themselves, and the extra of each where it has one is said by its module."""

KEEP_NOTHING: Final = ("sync", "null", "outbox", "deferred", "background", "failover")
"""Drivers whose connections take jobs and keep none themselves, so that there is nothing to look at or to serve."""


def module_of(driver: str) -> ModuleType:
    """The module of a broker's driver. Raises `ConfigError` when it, or what it needs, is not installed."""
    try:
        return import_module(BROKERS[driver])
    except ModuleNotFoundError as missing:
        raise ConfigError(
            f"The driver {driver!r} needs the module {missing.name!r}, which is not installed.",
            hint=f"pip install 'delayq[{driver}]'.",
        ) from missing
