"""Every key of a queue that Laravel keeps in Redis, spelt once. They have no hash tag: one server holds them all."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import msgspec

ENDINGS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "list": "",
        "delayed": ":delayed",
        "reserved": ":reserved",
        "notify": ":notify",
        "held": ":delayq:held",
        "aside": ":delayq:aside",
    }
)
"""What each role adds to the queue's name. `held` and `aside` are ours; Laravel does not know them."""


class LaravelKeys(msgspec.Struct, frozen=True):
    """The keys of one queue. `prefix` is Laravel's `database.redis.options.prefix`, or ''."""

    prefix: str
    queue: str

    def of(self, role: str) -> str:
        """The key called `role` in the scripts' manuals."""
        return f"{self.prefix}queues:{self.queue}{ENDINGS[role]}"


def pattern(prefix: str) -> str:
    """What matches all keys of all queues; a prefix may hold what a pattern means differently."""
    quoted = "".join(f"\\{character}" if character in "*?[]\\" else character for character in prefix)
    return f"{quoted}queues:*"


def queue_of(prefix: str, key: str) -> str:
    """The queue a key belongs to."""
    name = key[len(prefix) + len("queues:") :]
    for ending in sorted(filter(None, ENDINGS.values()), key=len, reverse=True):
        if name.endswith(ending):
            return name.removesuffix(ending)
    return name
