"""Keys that hide payloads: how they are written, which one is used, and which jobs are encrypted.

    2026-11-21-7kq2:4wUoT0cKqlGWGkqZ1mKXWv7uQX7GDp5r9m8L8b0gGkM=
    '---- id -----' '--------- 32 random bytes, base64 ----------'

The first key of a ring encrypts, all of them decrypt. So a new key is put in front, and the old one leaves the ring
when no job is left that it encrypted. An id is no secret: it travels with the job. A key never shows itself: not in
`repr`, not in an error, not among the settings.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final

from delayq.core.errors import ConfigError, UnknownKey
from delayq.core.when import format_instant

KEY_BYTES: Final = 32
_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_MAKE: Final = "`delayq key new` makes one."


@dataclass(frozen=True, slots=True)
class Key:
    """One key. `secret` has 32 bytes."""

    id: str
    secret: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Keyring:
    """Keys in their order; the first one encrypts."""

    keys: tuple[Key, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.keys)

    def __str__(self) -> str:
        """The ids alone."""
        return ", ".join(key.id for key in self.keys)

    @property
    def first(self) -> Key:
        """The one that encrypts. Raises `ConfigError` when there is none."""
        if not self.keys:
            raise ConfigError("There is no key to encrypt with.", hint=f"Set DELAYQ_KEYS or DELAYQ_KEYS_FILE; {_MAKE}")
        return self.keys[0]

    def find(self, key_id: str) -> Key:
        """The key of that id. Raises `UnknownKey`."""
        for key in self.keys:
            if key.id == key_id:
                return key
        known = f"known here: {self}" if self.keys else "no keys are known here"
        raise UnknownKey(
            f"The data is encrypted with the key {key_id!r}; {known}.",
            hint="Add that key behind the first one in DELAYQ_KEYS or DELAYQ_KEYS_FILE of this process.",
        )


NO_KEYS: Final = Keyring()


def parse_keys(texts: Iterable[str]) -> Keyring:
    """The ring of some keys, each as `id:base64`. Raises `ConfigError`, which never holds what it was given."""
    keys: list[Key] = []
    for number, text in enumerate(texts, 1):
        key = _parse(text.strip(), number)
        if any(key.id == other.id for other in keys):
            raise ConfigError(f"Two keys have the id {key.id!r}.", hint="An id names one key for ever; rename neither.")
        keys.append(key)
    return Keyring(tuple(keys))


def read_lines(text: str) -> list[str]:
    """The keys in the text of a file: one a line, without empty lines and those that begin with '#'."""
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def new_key(now_ms: int, key_id: str | None = None) -> str:
    """A new key, as it is written. Its id tells the day it was made, unless one is given."""
    made = key_id or f"{format_instant(now_ms)[:10]}-{base64.b32encode(os.urandom(3))[:4].decode('ascii').lower()}"
    if not _ID.fullmatch(made):
        raise ConfigError(f"{made!r} cannot be the id of a key.", hint="Use 1 to 64 of A-Z a-z 0-9 . _ -")
    return f"{made}:{base64.b64encode(os.urandom(KEY_BYTES)).decode('ascii')}"


def encrypts(patterns: Sequence[str], name: str) -> bool:
    """Whether jobs of that name are encrypted that do not say so themselves."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _parse(text: str, number: int) -> Key:
    """What is wrong is said by its place: what looks wrong may still be most of a key."""
    key_id, colon, secret = text.partition(":")
    if not colon:
        raise ConfigError(f"Key {number} has no id.", hint=f"Write it as id:base64; {_MAKE}")
    if not _ID.fullmatch(key_id):
        raise ConfigError(f"Key {number} has an id that cannot be used.", hint="Use 1 to 64 of A-Z a-z 0-9 . _ -")
    try:
        raw = base64.b64decode(secret.strip().replace("-", "+").replace("_", "/"), validate=True)
    except (binascii.Error, ValueError):
        raise ConfigError(f"The key {key_id!r} is no base64.", hint=_MAKE) from None
    if len(raw) != KEY_BYTES:
        raise ConfigError(f"The key {key_id!r} has {len(raw)} bytes; it must have {KEY_BYTES}.", hint=_MAKE)
    return Key(key_id, raw)
