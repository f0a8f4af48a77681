"""Keys of the HTTP API: what is kept of one, and whom a token belongs to.

    dq_k3v9qtl2_7mE4…          what the caller holds, and nobody else
    {"id":"k3v9qtl2","hash":"…","scopes":["read","write"], …}          what a line of the file holds

A token has 256 random bits, so its SHA-256 is enough: nobody guesses it from the hash, however fast he can try. A slow
hash protects passwords that people choose, and would cost every request its milliseconds.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Final

import msgspec

from delayq.core.errors import ConfigError, InvalidInput
from delayq.core.names import check_queue, new_id
from delayq.core.rate import Rate, parse_rate

_TOKEN: Final = re.compile(r"dq_([a-z0-9]{8})_[A-Za-z0-9_-]{43}")
_SECRET_BYTES: Final = 32
MAX_LABEL: Final = 100
MOST_NEW_QUEUES: Final = 10_000


class Scope(StrEnum):
    """What a key is good for. `write` reads too, and `admin` does everything."""

    READ = "read"
    WRITE = "write"
    ADMIN = "admin"


_GRANTS: Final = {
    Scope.READ: {Scope.READ},
    Scope.WRITE: {Scope.READ, Scope.WRITE},
    Scope.ADMIN: {Scope.READ, Scope.WRITE, Scope.ADMIN},
}


class ApiKey(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One key as it is kept.

    `queues`: names and patterns ('orders.*'), () = all of them. `rate` '' = without limit; `revoked_ms` 0 =
    in force. `new_queues`: how many queues it may make that did not exist, None = any number.
    """

    id: str
    hash: str
    scopes: tuple[Scope, ...]
    created_ms: int
    label: str = ""
    queues: tuple[str, ...] = ()
    rate: str = ""
    revoked_ms: int = 0
    new_queues: int | None = None

    def covers(self, queue: str) -> bool:
        """Whether the key is for that queue."""
        return covers(self.queues, queue)

    def may(self, scope: Scope) -> bool:
        """Whether it is good for that."""
        return any(scope in _GRANTS[own] for own in self.scopes)

    @property
    def limit(self) -> Rate | None:
        """How many requests in how long; None = as many as come."""
        return parse_rate(self.rate) if self.rate else None


def covers(queues: Sequence[str], queue: str) -> bool:
    """Return whether one of these names and patterns matches a queue; an empty list matches every queue."""
    return not queues or queue in queues or any("*" in one and fnmatchcase(queue, one) for one in queues)


def check_queues(given: Iterable[str]) -> tuple[str, ...]:
    """Return names and patterns of queues as they were given. Raises `InvalidName`; a pattern's only sign is `*`."""
    queues = tuple(given)
    for one in queues:
        check_queue(one.replace("*", "a"))
    return queues


def new_key(
    now_ms: int,
    scopes: Iterable[Scope],
    *,
    label: str = "",
    queues: Iterable[str] = (),
    rate: str = "",
    new_queues: int | None = None,
) -> tuple[ApiKey, str]:
    """A key that was not there before, and its token, which nothing keeps. Raises `InvalidInput` for a bad part."""
    if rate:
        parse_rate(rate)
    if new_queues is not None and not 0 <= new_queues <= MOST_NEW_QUEUES:
        raise InvalidInput(
            f"--new-queues is {new_queues}; it is a number from 0 to {MOST_NEW_QUEUES}.",
            hint="Leave it out for any number.",
        )
    key_id = new_id()[-8:]
    secret = base64.urlsafe_b64encode(os.urandom(_SECRET_BYTES)).decode().rstrip("=")
    token = f"dq_{key_id}_{secret}"
    key = ApiKey(key_id, digest(token), tuple(scopes), now_ms, label, check_queues(queues), rate, new_queues=new_queues)
    return key, token


def digest(token: str) -> str:
    """What is kept of a token."""
    return hashlib.sha256(token.encode()).hexdigest()


class ApiKeys:
    """The keys of one file, by id."""

    def __init__(self, keys: Iterable[ApiKey] = ()) -> None:
        self._keys = {key.id: key for key in keys}

    def __bool__(self) -> bool:
        """Whether one of them is in force."""
        return any(not key.revoked_ms for key in self._keys.values())

    def __iter__(self) -> Iterator[ApiKey]:
        return iter(self._keys.values())

    def find(self, token: str) -> ApiKey | None:
        """The key of a token; None for one that is unknown, revoked, or only looks like it.

        It takes the same time whether the id is known or not, and wherever the secret differs.
        """
        found = _TOKEN.fullmatch(token)
        key = self._keys.get(found[1]) if found else None
        same = hmac.compare_digest(key.hash if key else "", digest(token))
        return key if key is not None and same and not key.revoked_ms else None


def parse_lines(lines: Iterable[str]) -> ApiKeys:
    """The keys of a file, one JSON document a line. Raises `ConfigError`, and never shows a line."""
    keys: dict[str, ApiKey] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            key = msgspec.json.decode(line, type=ApiKey)
            if key.rate:
                parse_rate(key.rate)
        except (msgspec.MsgspecError, InvalidInput) as error:
            raise ConfigError(
                f"Line {number} holds no API key: {error}.", hint="`delayq api-key create` writes it."
            ) from None
        keys[key.id] = key
    return ApiKeys(keys.values())


def format_line(key: ApiKey) -> str:
    """A key as a line of the file."""
    return msgspec.json.encode(key).decode()
