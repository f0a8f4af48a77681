"""Where failed jobs are kept that their backend does not keep itself, as people write it.

redis                            the Redis of the settings
redis://elsewhere/0              another one
file:/var/lib/delayq/failed      a folder
postgresql://shop@localhost/shop a table of a database, as SQLAlchemy writes its URL
null                             nowhere
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

from pydantic import PlainSerializer, PlainValidator

from delayq.core.endpoint import Endpoint
from delayq.core.redis_url import parse_endpoint
from delayq.core.shown import shown
from delayq.settings.values import DatabaseUrl, database_url, ours, path_of, refused

FILE: Final = "file:"
_REDIS: Final = ("redis://", "rediss://", "unix://", "redis+")


class StoreKind(StrEnum):
    """What keeps failed jobs."""

    REDIS = "redis"
    FILE = "file"
    DATABASE = "database"
    NULL = "null"


@dataclass(frozen=True, slots=True)
class FailedStoreAt:
    """One of these places. As text it has no password."""

    kind: StoreKind
    endpoint: Endpoint | None = None
    folder: Path | None = None
    database: DatabaseUrl | None = None

    def __str__(self) -> str:
        if self.folder is not None:
            return f"{FILE}{self.folder}"
        return str(self.endpoint or self.database or self.kind)


DEFAULT: Final = FailedStoreAt(StoreKind.REDIS)


def _store(value: Any) -> FailedStoreAt:
    if isinstance(value, FailedStoreAt):
        return value
    if not isinstance(value, str) or not value:
        raise refused(f"{shown(value)} is no place for failed jobs.")
    if value in (StoreKind.REDIS, StoreKind.NULL):
        return FailedStoreAt(StoreKind(value))
    if value.startswith(FILE):
        return FailedStoreAt(StoreKind.FILE, folder=path_of(value.removeprefix(FILE).removeprefix("//")))
    if value.startswith(_REDIS):
        return FailedStoreAt(StoreKind.REDIS, endpoint=parse_endpoint(value))
    if "://" in value:
        return FailedStoreAt(StoreKind.DATABASE, database=database_url(value))
    raise refused(f"{shown(value)} is no place for failed jobs; those are redis, null, file:FOLDER, or a URL.")


FailedStore: TypeAlias = Annotated[FailedStoreAt, PlainValidator(ours(_store)), PlainSerializer(str)]
