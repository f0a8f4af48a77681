"""Unique jobs: while a job owns a unique key, no other job with this key is stored in the same queue.

    unique="invoice:42"                                     the key is this text, for jobs of all names
    Unique(key=["order_id"])                                the key is the job name and one member of the payload
    Unique()                                                the key is the job name and the whole payload
    Unique(key=["order_id"], until="start")                 the key is free when the handler starts
    Unique(key=["user_id"], until="window", window="1h")    the key is taken for an hour, even if the job ends earlier

The envelope stores the key as a lock: `<digest>`, `<digest>.start` or `<digest>.<window in ms>`. A digest is a checksum
of the key. So keys can be long, and their texts are not visible in Redis.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, get_args

import msgspec

from delayq.core.display import shown
from delayq.core.errors import InvalidInput
from delayq.core.failure import message_of
from delayq.core.times import Duration, duration_ms

UniqueKey = str | Sequence[str] | Callable[[Mapping[str, Any]], str] | None
"""A text, names of members of the payload, or a function from payload to text; None = the whole payload."""

Until = Literal["done", "start", "window"]

_START: Final = ".start"


class Unique(msgspec.Struct, frozen=True, kw_only=True):
    """A unique key of a job. While the key is taken, no other job with the same name and key is stored in the queue.

    * `key`: names of members of the payload (["order_id"]), a text, or a function that gets the payload as a dict and
      returns a text. None = the whole payload.
    * `until`: "done" = the key is free when the job has ended: it is completed, has failed for good, or was cancelled
      or deleted. "start" = the key is free when the handler starts. "window" = the key is free when `window` has
      passed since the job was stored, even if the job ends earlier or later.
    * `window`: the length of the window, such as "1h". Required with "window", and refused otherwise.

    Raises InvalidInput.
    """

    key: UniqueKey = None
    until: Until = "done"
    window: Duration | None = None

    def __post_init__(self) -> None:
        """Check the members."""
        names: Sequence[object] | None = self.key if isinstance(self.key, Sequence) else None
        wrong = [name for name in names or () if not isinstance(name, str) or not name]
        if self.key is not None and not callable(self.key) and (wrong or not names):
            what = f"key has {shown(wrong[0])}, which is not a name" if wrong else f"key is {shown(self.key)}"
            raise InvalidInput(
                f"{what}.", hint='Use a text that is not empty, or names of members: key=["order_id"].', field="key"
            )
        if self.until not in get_args(Until):
            raise InvalidInput(
                f"until is {shown(self.until)}.", hint='Use "done", "start" or "window".', field="unique"
            )
        if (self.until == "window") != (self.window is not None):
            raise InvalidInput(
                f"until is {self.until!r} and window is {shown(self.window)}.",
                hint='Give both or neither of these two: until="window", window="1h".',
                field="unique",
            )
        if self.window is not None and not self._window_ms:
            raise InvalidInput(
                f"window is {shown(self.window)}.", hint="Use a duration above 0, such as 1h.", field="window"
            )

    @property
    def _window_ms(self) -> int:
        return 0 if self.window is None else duration_ms(self.window, field="window")


def check_unique(unique: object) -> str | Unique:
    """Return `unique` if it is a key or a Unique; raises InvalidInput otherwise."""
    if isinstance(unique, Unique) or (isinstance(unique, str) and unique):
        return unique
    raise InvalidInput(
        f"unique is {shown(unique)}.",
        hint='Use a text that is not empty, or Unique(key=["order_id"]).',
        field="unique",
    )


def lock_of(unique: str | Unique, name: str, data: bytes | msgspec.Raw) -> str:
    """Return the lock of a job with this name and payload; raises InvalidInput."""
    checked = check_unique(unique)
    if isinstance(checked, str):
        return hashlib.blake2b(_encoded(checked), digest_size=16).hexdigest()
    text = _text_of(checked.key, name, data)
    if checked.until == "window":
        return f"{_digest('window', name, text)}.{checked._window_ms}"
    return _digest("unique", name, text) + (_START if checked.until == "start" else "")


def to_take(lock: str | None) -> str:
    """Return a lock in the form that `schedule.lua` gets; '' = no lock."""
    return (lock or "").removesuffix(_START)


def to_take_again(lock: str | None) -> str:
    """Return the digest that a retry of a failed job takes again. It is '' for until="start" and until="window"."""
    return lock if lock and "." not in lock else ""


def to_free_at_start(lock: str | None) -> str:
    """Return the digest to free when the handler starts; '' = none."""
    return lock.removesuffix(_START) if lock and lock.endswith(_START) else ""


def is_window(lock: str) -> bool:
    """Return True if the lock has a window. `lock`: as `to_take` returns it."""
    return "." in lock


def digest_of(lock: str) -> str:
    """Return the digest of a lock, which decides the shard of the job."""
    return lock.partition(".")[0]


def _text_of(key: UniqueKey, name: str, data: bytes | msgspec.Raw) -> str:
    """Return the text of a key. `name`: the name of the job. Raises InvalidInput."""
    if isinstance(key, str):
        return key
    payload = msgspec.json.decode(data)
    if callable(key):
        function = (
            f"The function {getattr(key, '__qualname__', type(key).__name__)} of the unique key of the job {name!r}"
        )
        try:
            text = key(payload)
        except Exception as error:
            raise InvalidInput(
                f"{function} raised {type(error).__name__}: {message_of(error).rstrip('.')}.",
                hint="The function gets the payload as a dict of JSON values, and must return a text.",
                field="unique",
            ) from error
        if isinstance(text, str) and text:
            return text
        raise InvalidInput(
            f"{function} returned {shown(text)}.", hint="Return a text that is not empty.", field="unique"
        )
    if key is not None:
        missing = [name for name in key if not isinstance(payload, dict) or name not in payload]
        if missing:
            raise InvalidInput(
                f"The unique key of the job {name!r} names the member {missing[0]!r}, but the payload does not have "
                "this member.",
                hint="Name members of the payload.",
                field="unique",
            )
        payload = {name: payload[name] for name in key}
    return msgspec.json.encode(payload, order="deterministic").decode()


def _digest(kind: str, name: str, text: str) -> str:
    """Return the digest of a key that belongs to a job name. `kind`: "unique" or "window".

    The same key has different digests in the two kinds, so that a window does not affect jobs without a window.
    """
    return hashlib.blake2b(_encoded(f"{name}\0{text}"), digest_size=16, person=f"delayq.{kind}".encode()).hexdigest()


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
