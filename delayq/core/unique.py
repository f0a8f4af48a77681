"""Unique jobs: what a key is, what its lock is called, and until when it is held. Pure.

    unique="invoice:42"                               until the job has ended; a key that all jobs share
    Unique(key=["order_id"])                          the same; a key of this job's name and some of its fields
    Unique(key=…, until="start")                      until its handler is called
    Unique(key=…, until="window", window="1h")        for an hour, whatever becomes of the job

An envelope carries the lock as one text: `<digest>`, `<digest>.start` or `<digest>.<window in ms>`, which is
also what a window's row is called. Windows have digests of their own, so that no verb on jobs ever meets one.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any, Final, TypeAlias

import msgspec

from delayq.core import envelope as envelopes
from delayq.core.errors import InvalidInput
from delayq.core.states import OnConflict
from delayq.core.when import duration_ms

UniqueKey: TypeAlias = str | Sequence[str] | Callable[[Any], str] | None
"""None: all fields. Names: these fields. A function: of the job, or of its fields where it is no `Job`. Else a text."""

START: Final = ".start"
_EXAMPLE: Final = 'An example: unique="invoice:42".'
_TIMELESS: Final = (OnConflict.KEEP, OnConflict.ERROR)


class Until(StrEnum):
    """What frees a lock: the job's end, its start, or time alone."""

    DONE = "done"
    START = "start"
    WINDOW = "window"


@dataclass(frozen=True, slots=True)
class Unique:
    """At most one job of a name with the same key. A second one changes nothing; its answer names the owner.

    Raises `InvalidInput` for a word nobody knows, and for a window without its length.
    """

    key: UniqueKey = None
    until: Until | str = Until.DONE
    window: str | timedelta | None = None

    def __post_init__(self) -> None:
        check_key(self.key)
        if self.until not in tuple(Until):
            raise InvalidInput(f"until is {self.until!r}; it must be one of {', '.join(Until)}.")
        if (self.until == Until.WINDOW) is (self.window is None):
            raise InvalidInput(
                f"A lock until {self.until} {'needs' if self.window is None else 'has no'} window.",
                hint='An example: Unique(key=["user_id"], until="window", window="1h").',
            )
        if self.window is not None and duration_ms(self.window) == 0:
            raise InvalidInput("A window of no length keeps nobody out.", hint='An example: window="1h".')


def unique_from(key: str | None, window: str | None) -> str | Unique | None:
    """Return the lock that a command line or an HTTP body asks for: a key, a window, both, or none.

    A window without a key locks the job's name and its whole payload. Raises as `Unique`.
    """
    return key if window is None else Unique(key=key, until=Until.WINDOW, window=window)


def check_key(key: UniqueKey) -> None:
    """Raises `InvalidInput` for a key that says nothing."""
    if key is not None and not callable(key) and not (key and all(key)):
        raise InvalidInput(f"The key {key!r} says nothing.", hint='Give a text, names of fields (["id"]) or None.')


def key_text(key: UniqueKey, data: Any, subject: Any = None) -> str:
    """The text of a key. `data` is the payload, as JSON or not yet; a function is given `subject`, or the payload."""
    if isinstance(key, str):
        return key
    raw = envelopes.encode_data(data, sys.maxsize) if not isinstance(data, bytes | msgspec.Raw) else data
    fields = msgspec.json.decode(raw)
    if callable(key):
        text = key(fields if subject is None else subject)
        if text and isinstance(text, str):
            return text
        raise InvalidInput(f"The function of a unique key answered {text!r}.", hint="It must answer with a text.")
    if key is not None:
        missing = [name for name in key if not isinstance(fields, dict) or name not in fields]
        if missing:
            raise InvalidInput(f"The payload has no member {missing[0]!r}, which its unique key is made of.")
        fields = {name: fields[name] for name in key}
    return msgspec.json.encode(fields, order="deterministic").decode()


def wire(unique: str | Unique, name: str, data: Any) -> str:
    """The lock as an envelope carries it; `name` is the job's."""
    if isinstance(unique, str):
        return unique_digest(unique)
    text = key_text(unique.key, data)
    if unique.window is not None:
        return f"{scoped('window', name, text)}.{duration_ms(unique.window)}"
    return scoped("unique", name, text) + (START if unique.until == Until.START else "")


def unique_digest(key: str) -> str:
    """How a key is stored that all jobs share: short, and no longer readable in a list of keys."""
    if not key:
        raise InvalidInput("A unique key cannot be empty.", hint=_EXAMPLE)
    return hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def scoped(kind: str, name: str, key: str) -> str:
    """The digest of a key that belongs to one job name; another `kind` never has the same."""
    told = f"{name}\0{key}".encode("utf-8", "surrogatepass")
    return hashlib.blake2b(told, digest_size=16, person=f"delayq.{kind}".encode()).hexdigest()


# -- on the wire -----------------------------------------------------------------------------------------------------


def until_of(lock: str) -> Until:
    """What frees a lock."""
    _, _, rest = lock.partition(".")
    return Until.WINDOW if rest.isdigit() else Until.START if lock.endswith(START) else Until.DONE


def word_of(lock: str | None) -> str:
    """What `schedule` is told of it: '' for none, and a start is the handler's business."""
    return (lock or "").removesuffix(START)


def again_of(lock: str | None) -> str:
    """What a `retry` of a failed job takes: nothing, when its start or time alone frees it."""
    return lock if lock and until_of(lock) is Until.DONE else ""


def refuse_changes(word: str, on_conflict: OnConflict) -> None:
    """Raises `InvalidInput` where a lock that only time frees would have to follow another payload or time."""
    if "." in word and on_conflict not in _TIMELESS:
        raise InvalidInput(
            f"A job that is unique for a window cannot be scheduled with on_conflict={on_conflict.value!r}.",
            hint='Use "keep" or "error", or Debounce where the last one should win.',
        )
