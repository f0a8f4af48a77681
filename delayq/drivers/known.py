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
from delayq.settings.tables import ConnectionSettings

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


_WHAT_THEY_DO: Final[Mapping[str, str]] = MappingProxyType(
    {
        "sync": "runs each job at once, in whoever sends it",
        "null": "drops every job",
        "outbox": "writes jobs into the application's database, and a relay sends them",
        "deferred": "runs each job when the web response under way is sent",
        "background": "runs each job at once, in a process of its own",
        "failover": "hands each job to another connection",
    }
)


def nothing_kept(name: str, given: ConnectionSettings) -> ConfigError:
    """The answer of such a connection that is asked about its jobs: what becomes of them, and who can be asked."""
    to = given.options.get("to", ())
    others = [to] if isinstance(to, str) else [str(one) for one in to]
    ask = (
        " or ".join(f"--connection {other}" for other in others) or "one that keeps jobs, such as --connection default"
    )
    more = {
        "outbox": " `delayq outbox list` shows what was not sent.",
        "background": f" `delayq --connection {name} failed list` shows what failed.",
    }
    return ConfigError(
        f"The connection {name!r} {_WHAT_THEY_DO[given.driver]}; it keeps none that could be asked about.",
        hint=f"Ask {ask}.{more.get(given.driver, '')}",
    )


def module_of(driver: str) -> ModuleType:
    """The module of a broker's driver. Raises `ConfigError` when it, or what it needs, is not installed."""
    try:
        return import_module(BROKERS[driver])
    except ModuleNotFoundError as missing:
        raise ConfigError(
            f"The driver {driver!r} needs the module {missing.name!r}, which is not installed.",
            hint=f"pip install 'delayq[{driver}]'.",
        ) from missing
