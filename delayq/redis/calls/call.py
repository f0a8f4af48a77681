"""A call: everything a shell needs to send, and how to read what comes back. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any, ClassVar, Generic, TypeVar

import msgspec

from delayq.core.options import Options
from delayq.core.shards import PLAIN, Layout, queue_of
from delayq.redis.keys import Globals, Keys
from delayq.redis.scripts import Script, load

T = TypeVar("T")
Argument = str | bytes | int

ONCE_MS = 60_000
FARTHEST = 2**53 - 1
DIGITS = 15  # of a number in a field of `meta`; scripts know the same bound


class Scope(msgspec.Struct, frozen=True):
    """Where and when a call applies. `now_ms` None means the server's clock; only tests set it.

    `queue` is one shard; `layout` says by which shards it was chosen. With `asks` a job is only looked for there: it
    may lie there since before, and is made elsewhere.
    """

    options: Options
    queue: str
    now_ms: int | None = None
    layout: Layout = PLAIN
    asks: bool = False

    @property
    def name(self) -> str:
        """The queue the shard belongs to."""
        return queue_of(self.queue)

    @property
    def shards(self) -> str:
        """The layout as scripts take it that make jobs."""
        if self.layout is PLAIN:
            return "?1" if self.asks else "1"
        return f"?{self.layout}" if self.asks else str(self.layout)

    @property
    def keys(self) -> Keys:
        return Keys(self.options.prefix, self.queue)

    @property
    def wake(self) -> str:
        return _wake(self.options.prefix)

    @property
    def switch(self) -> str:
        return Globals(self.options.prefix).switches

    @property
    def now(self) -> str:
        return "" if self.now_ms is None else str(self.now_ms)


@lru_cache(maxsize=64)
def _wake(prefix: str) -> str:
    return Globals(prefix).wake


class Nature(Enum):
    """What a call does to Redis, and so what may be done when its reply is lost."""

    READS = "it changes nothing, so it may be sent again and its outcome is never in doubt"
    SAFE = "sent twice it does the same as sent once"
    ONCE = "it must not be sent again"


class Call(msgspec.Struct, Generic[T], frozen=True):
    """One script call."""

    script: Script
    keys: tuple[str, ...]
    args: tuple[Argument, ...]
    parse: Callable[[Any], T]
    nature: Nature = Nature.SAFE
    queue: str = ""
    """Only of calls whose keys do not say it."""
    hasty: ClassVar[bool] = False

    @property
    def place(self) -> str:
        """Its queue and script, for an error's sentence; the queue is the hash tag of its keys."""
        queue = self.queue or self.keys[0].partition("{")[2].rpartition("}")[0]
        return f"{f'the queue {queue}' if queue else 'delayq'} (asked by {self.script.name}.lua)"

    @property
    def resend(self) -> bool:
        return self.nature is not Nature.ONCE

    @property
    def reads(self) -> bool:
        return self.nature is Nature.READS


@dataclass(frozen=True, slots=True)
class Command(Generic[T]):
    """One plain Redis command, for the few keys that belong to no queue. May always be sent again."""

    words: tuple[Argument, ...]
    parse: Callable[[Any], T]
    reads: bool = False
    hasty: bool = False
    """A node of a cluster that is away is not waited for: the caller goes on without an answer."""

    @property
    def place(self) -> str:
        """Its command and key, for an error's sentence."""
        named = (text(word) if isinstance(word, bytes) else str(word) for word in self.words[:2])
        return f"delayq ({' '.join(named)})"

    @property
    def resend(self) -> bool:
        return True


def call(
    script: str,
    scope: Scope,
    args: Sequence[Argument],
    parse: Callable[[Any], T],
    *,
    once: str = "",
    state: str = "",
    nature: Nature = Nature.SAFE,
) -> Call[T]:
    """A call of `script` on a queue's keys. `once` fills its key of that name, `state` the key `set`."""
    loaded, keys = placed(script, scope.options.prefix, scope.queue, state)
    if once:
        at = loaded.keys.index("once")
        keys = (*keys[:at], keys[at] + once, *keys[at + 1 :])
    return Call(loaded, keys, tuple(args), parse, nature)


@lru_cache(maxsize=4096)
def placed(script: str, prefix: str, queue: str, state: str = "") -> tuple[Script, tuple[str, ...]]:
    """A script and its keys in its order; the same few for every call on a queue."""
    loaded, keys = load(script), Keys(prefix, queue)
    special = {"once": keys.once(""), "set": keys.of(state), "control": Globals(prefix).control}
    return loaded, tuple(special.get(name) or keys.of(name) for name in loaded.keys)


def text(value: bytes) -> str:
    """A reply's bytes as text; ids and answers are ASCII, foreign names may be anything."""
    return value.decode("utf-8", "backslashreplace")


def pages(items: Sequence[T], size: int) -> list[Sequence[T]]:
    """Items in pages of at most that many."""
    return [items[start : start + size] for start in range(0, len(items), size)]


def number(value: bytes | int | None) -> int | None:
    """A reply's number; None for '' or nil, and for what is none. A score may carry a fraction, which is dropped."""
    if value is None or isinstance(value, int):
        return value
    try:
        return int(max(-FARTHEST, min(FARTHEST, float(value))))  # somebody may have written `inf`
    except ValueError:
        return None


def whole(value: bytes | None) -> int | None:
    """The number in a field of a hash; None when there is none, or something else."""
    return int(value) if value is not None and value.isdigit() and len(value) <= DIGITS else None


def hash_page(reply: Any) -> tuple[int, list[bytes]]:
    """A page of HSCAN: where the next one begins (0 = this was the last), and names and values in turn.

    redis-py reads some replies itself, and hands on others as they came.
    """
    cursor, pairs = reply
    return int(cursor), [word for pair in pairs.items() for word in pair] if isinstance(pairs, dict) else list(pairs)
