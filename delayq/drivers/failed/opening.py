"""From the settings to the store of failed jobs. Nothing connects before it is used."""

from __future__ import annotations

from typing import assert_never

from delayq.core.errors import ConfigError
from delayq.drivers.failed.file import FileFailedStore
from delayq.drivers.failed.null import NullFailedStore
from delayq.drivers.failed.redis import RedisFailedStore
from delayq.drivers.failed_store import FailedStore
from delayq.redis.opening import open_connector
from delayq.settings import Settings
from delayq.settings.stores import StoreKind


def open_failed_store(settings: Settings) -> FailedStore:
    """Where failed jobs are kept by the settings. Raises `ConfigError` when what it needs is not installed."""
    at = settings.failed_store
    match at.kind:
        case StoreKind.NULL:
            return NullFailedStore()
        case StoreKind.FILE:
            assert at.folder is not None
            return FileFailedStore(at.folder)
        case StoreKind.REDIS:
            return RedisFailedStore(open_connector(settings, at.endpoint), settings.options())
        case StoreKind.DATABASE:
            assert at.database is not None
            return _in_database(at.database.url)
        case _:
            assert_never(at.kind)


def _in_database(url: str) -> FailedStore:
    try:
        from delayq.drivers.database.engine import Database  # few applications have one
        from delayq.drivers.database.failing import FailedJobs
        from delayq.drivers.database.tables import tables
    except ModuleNotFoundError as missing:
        raise ConfigError(
            f"A store of failed jobs in a database needs the module {missing.name!r}, which is not installed.",
            hint="pip install 'delayq[database]'.",
        ) from missing
    return FailedJobs(Database(url), tables().failed)
