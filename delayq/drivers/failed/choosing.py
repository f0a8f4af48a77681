"""Which store keeps the failed jobs of a backend that has no place for them: the option `failed` of its connection.

failed = "redis://127.0.0.1/1"         a Redis: one place for the workers of all machines
failed = "postgresql://shop@db/shop"   the table failed_jobs of a database, as SQLAlchemy writes its URL
failed = "/var/lib/shop/failed"        a folder of this machine
failed = "null"                        nowhere; the log alone tells
left out                               the folder `failed` among this user's data
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from delayq.core.endpoint import Endpoint
from delayq.core.errors import ConfigError
from delayq.core.mask import mask_url
from delayq.core.options import Options
from delayq.core.redis_url import parse_endpoint
from delayq.core.shown import shown
from delayq.drivers.failed.file import FileFailedStore
from delayq.drivers.failed.null import NullFailedStore
from delayq.drivers.failed.redis import RedisFailedStore
from delayq.drivers.failed_store import FailedStore
from delayq.drivers.serving.given import Given
from delayq.redis.connect import Connector
from delayq.redis.embedded import default_data_dir

FOLDER: Final = "failed"
REDIS: Final = ("redis://", "rediss://", "unix://", "redis+")


def choose(name: str, options: Given, engine: Options, *, laravel: str = "") -> Callable[[], FailedStore]:
    """What makes the store of the connection `name`, which Laravel calls `laravel`; '' = Laravel does not know it.

    Raises `ConfigError` for a store that cannot be used.
    """
    place = options.text("failed")
    if place == "null":
        return NullFailedStore
    if place.startswith(REDIS):
        return partial(_on_redis, parse_endpoint(place), engine)
    if in_database(place):
        return partial(_in_database, name, place, laravel)
    if place and not Path(place).is_absolute():
        raise ConfigError(
            f"failed of the connection {name!r} is {shown(mask_url(place))}.",
            hint='Use a folder that begins with /, the URL of a Redis or a database, or "null".',
        )
    return partial(FileFailedStore, Path(place) if place else default_data_dir() / FOLDER)


def in_database(place: object) -> bool:
    """Whether what an option `failed` says is the URL of a database."""
    return isinstance(place, str) and "://" in place and not place.startswith(REDIS)


def _on_redis(place: Endpoint, engine: Options) -> RedisFailedStore:
    return RedisFailedStore(Connector(place), engine)


def _in_database(name: str, place: str, laravel: str) -> FailedStore:
    try:
        from delayq.drivers.database.engine import Database  # few applications have one
        from delayq.drivers.database.failed import DatabaseFailedStore
        from delayq.drivers.database.faults import Owner
        from delayq.drivers.database.tables import tables
    except ModuleNotFoundError as missing:
        raise ConfigError(
            f"A store of failed jobs in a database needs the module {missing.name!r}, which is not installed.",
            hint="pip install 'delayq[database]'.",
        ) from missing
    database = Database(place, owner=Owner(name, "failed"))
    return DatabaseFailedStore(database, tables().failed, connection=name, laravel=laravel)
