"""The types of settings: what people write in, what the engine needs out.

Every reader gets a flag's, a variable's or a file's value and returns the checked one, or raises
one sentence that names the value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

from pydantic import BeforeValidator, PlainSerializer, PlainValidator
from pydantic_core import PydanticCustomError

from delayq.core.backoff import Backoff, parse_backoff, to_wire
from delayq.core.durability import Durability, parse_durability
from delayq.core.durations import duration_ms, format_duration
from delayq.core.endpoint import Endpoint
from delayq.core.errors import DelayqError
from delayq.core.keyring import Keyring, parse_keys
from delayq.core.leases import LONGEST_MS, SHORTEST_MS
from delayq.core.mask import mask_url
from delayq.core.names import check_queue
from delayq.core.redis_url import parse_endpoint
from delayq.core.shown import shown

_PREFIX: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,63}")
_MODULE: Final = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*(?::[^\W\d]\w*)?")
_WHOLE: Final = re.compile(r"[0-9]{1,15}")
_SIZE: Final = re.compile(r"([0-9]{1,15})(B|KiB|MiB)?")
_LISTENING: Final = re.compile(r"(?:([A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]):)?([0-9]{1,5})")
_LAST_PORT: Final = 65_535
_BYTES: Final = {None: 1, "B": 1, "KiB": 1024, "MiB": 1024 * 1024}


def refused(sentence: str, path: Sequence[str] = ()) -> PydanticCustomError:
    """Return the error of a reader. `path` leads to the wrong entry, when the value is a table."""
    return PydanticCustomError("refused", "{sentence}", {"sentence": sentence, "path": tuple(path)})


@contextmanager
def entry(*path: str) -> Iterator[None]:
    """Name the entry of a table that is read inside: it goes before the path of the error that is raised there."""
    try:
        yield
    except DelayqError as error:
        raise refused(error.message, path) from None
    except PydanticCustomError as error:
        raise refused(error.message(), (*path, *path_of(error.context))) from None


def path_of(context: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Return the path to the wrong entry from the context of an error that `refused` made; empty for any other."""
    path: tuple[str, ...] = (context or {}).get("path", ())
    return path


def ours(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """`read`, with delayq's own errors passed on. Not their hints: the place has its own way to write an example."""

    def reader(value: Any) -> Any:
        with entry():
            return read(value)

    return reader


@dataclass(frozen=True, slots=True)
class DatabaseUrl:
    """The URL of a database, as SQLAlchemy writes it. As text it has no password."""

    url: str = field(repr=False)

    def __str__(self) -> str:
        return mask_url(self.url)


def _database(value: Any) -> DatabaseUrl:
    if isinstance(value, DatabaseUrl):
        return value
    if not isinstance(value, str) or "://" not in value:
        raise refused(f"{shown(value) if not isinstance(value, str) else mask_url(value)} is no URL of a database.")
    return DatabaseUrl(value)


def _milliseconds(least_ms: int, most_ms: int) -> PlainValidator:
    def read(value: Any) -> int:
        ms = duration_ms(value)
        if not least_ms <= ms <= most_ms:
            limits = f"{format_duration(least_ms)} to {format_duration(most_ms)}"
            raise refused(f"{shown(value)} is out of range; use {limits}.")
        return ms

    return PlainValidator(ours(read))


def _whole(least: int, most: int) -> PlainValidator:
    def read(value: Any) -> int:
        number = int(value) if isinstance(value, str) and _WHOLE.fullmatch(value) else value
        if not isinstance(number, int) or isinstance(number, bool) or not least <= number <= most:
            raise refused(f"{shown(value)} is no whole number from {least:,} to {most:,}.")
        return number

    return PlainValidator(read)


def _size(least: int, most: int) -> PlainValidator:
    def read(value: Any) -> int:
        found = _SIZE.fullmatch(str(value)) if isinstance(value, str | int) and not isinstance(value, bool) else None
        size = int(found[1]) * _BYTES[found[2]] if found else -1
        if not least <= size <= most:
            raise refused(
                f"{shown(value)} is no size from {least:,} to {most:,} bytes; 64KiB and 1MiB may be said too."
            )
        return size

    return PlainValidator(read)


def _text(pattern: re.Pattern[str], what: str) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise refused(f"{shown(value)} is no {what}.")
        return value

    return read


prefix_text: Final = _text(_PREFIX, "prefix: use 1 to 64 of A-Z a-z 0-9 . _ : -")
"""Reads a key prefix."""


def _choice(value: Any) -> Any:
    return value.strip().lower() if isinstance(value, str) else value


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def _listening(value: Any) -> Address:
    if isinstance(value, Address):
        return value
    found = _LISTENING.fullmatch(str(value)) if isinstance(value, str | int) and not isinstance(value, bool) else None
    if found is None or not int(found[2]) <= _LAST_PORT:
        raise refused(f"{shown(value)} is no port, and no host:port.")
    return Address((found[1] or "127.0.0.1").strip("[]"), int(found[2]))


def _url(value: Any) -> Endpoint:
    if isinstance(value, Endpoint):
        return value
    if not isinstance(value, str):
        raise refused(f"{shown(value)} is no URL.")
    return parse_endpoint(value)


def _backoff(value: Any) -> Backoff:
    if not isinstance(value, str | list | tuple):
        raise refused(f"{shown(value)} is no backoff.")
    return parse_backoff(value)


def _durability(value: Any) -> Durability:
    if isinstance(value, Durability):
        return value
    if not isinstance(value, str):
        raise refused(f"{shown(value)} is no durability.")
    return parse_durability(value)


def _keys(value: Any) -> Keyring:
    """Never shows what it was given: it may be most of a key."""
    if isinstance(value, Keyring):
        return value
    texts = value.split(",") if isinstance(value, str) else value
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
        raise refused("that is no list of keys.")
    return parse_keys(texts)


def _patterns(value: Any) -> tuple[str, ...]:
    texts = value.split(",") if isinstance(value, str) else value
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) and text.strip() for text in texts):
        raise refused(f"{shown(value)} is no list of patterns for job names.")
    return tuple(text.strip() for text in texts)


def _path(value: Any) -> Path:
    if not isinstance(value, str | Path) or not str(value) or "\0" in str(value):
        raise refused(f"{shown(value)} is no path.")
    try:
        return Path(value).expanduser()
    except RuntimeError:
        raise refused(f"{shown(value)} names a home directory that is not known.") from None


_DAY: Final = 86_400_000

# An endpoint's text has no password; its fields, which a dump would show, do.
Database: TypeAlias = Annotated[DatabaseUrl, PlainValidator(_database), PlainSerializer(str)]
Url: TypeAlias = Annotated[Endpoint, PlainValidator(ours(_url)), PlainSerializer(str)]
Listening: TypeAlias = Annotated[Address, PlainValidator(_listening), PlainSerializer(str)]
Prefix: TypeAlias = Annotated[str, PlainValidator(prefix_text)]
Queue: TypeAlias = Annotated[str, PlainValidator(ours(check_queue))]
Module: TypeAlias = Annotated[str, PlainValidator(_text(_MODULE, "module, such as shop.jobs or shop.jobs:app"))]
Lease: TypeAlias = Annotated[int, _milliseconds(SHORTEST_MS, LONGEST_MS)]
Tick: TypeAlias = Annotated[int, _milliseconds(100, _DAY)]
Keep: TypeAlias = Annotated[int, _milliseconds(0, 3653 * _DAY)]
Recoveries: TypeAlias = Annotated[int, _whole(0, 1_000)]
Tries: TypeAlias = Annotated[int, _whole(0, 1_000_000)]
Entries: TypeAlias = Annotated[int, _whole(1, 1_000_000_000)]
Payload: TypeAlias = Annotated[int, _size(1, 64 * 1024 * 1024)]
BackoffSetting: TypeAlias = Annotated[Backoff, PlainValidator(ours(_backoff)), PlainSerializer(to_wire)]
Safety: TypeAlias = Annotated[Durability, PlainValidator(ours(_durability)), PlainSerializer(str)]
Location: TypeAlias = Annotated[Path, PlainValidator(_path)]
Keys: TypeAlias = Annotated[Keyring, PlainValidator(ours(_keys)), PlainSerializer(str)]
Patterns: TypeAlias = Annotated[tuple[str, ...], PlainValidator(_patterns), PlainSerializer(",".join)]
Choice: Final = BeforeValidator(_choice)
