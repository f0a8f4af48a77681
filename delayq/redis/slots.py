"""Which node of a cluster has which key: slots, the map of them, and which key a command is about. Pure.

A key's slot is the CRC of what stands in its first braces. Every node knows who has which slot, and says so in
`CLUSTER SLOTS`; a client that asks the wrong one is told `MOVED slot host:port`.
"""

from __future__ import annotations

from binascii import crc_hqx
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

SLOTS: Final = 16_384

Address = tuple[str, int]
"""Host and port of a node."""

# Where their key stands, for commands that do not have it right behind their name.
_KEY_AT: Final = {"EVALSHA": 3, "EVAL": 3, "OBJECT": 2, "MEMORY": 2, "XINFO": 2, "XGROUP": 2}
_KEYLESS: Final = frozenset(
    {
        *("ACL", "CLIENT", "CLUSTER", "COMMAND", "CONFIG", "DBSIZE", "ECHO", "FLUSHALL", "HELLO", "INFO", "LATENCY"),
        *("PING", "PUBLISH", "ROLE", "SCAN", "SCRIPT", "SLOWLOG", "TIME", "WAIT", "WAITAOF"),
    }
)
_AFTER_STREAMS: Final = ("XREADGROUP", "XREAD")
_STREAMS: Final = ("STREAMS", b"STREAMS")


@lru_cache(maxsize=4096)
def slot_of(key: str | bytes) -> int:
    """The slot of a key."""
    raw = key.encode() if isinstance(key, str) else key
    start = raw.find(b"{")
    if start >= 0 and (end := raw.find(b"}", start + 1)) > start + 1:
        raw = raw[start + 1 : end]
    return crc_hqx(raw, 0) % SLOTS


def slot_of_command(words: Sequence[Any]) -> int | None:
    """The slot a command is about; None for one that any node may answer."""
    name = str(words[0]).upper()
    if name in _AFTER_STREAMS:
        return slot_of(words[next(n for n, word in enumerate(words) if word in _STREAMS) + 1])
    at = _KEY_AT.get(name, 1)
    return None if name in _KEYLESS or at >= len(words) else slot_of(words[at])


@dataclass(frozen=True, slots=True)
class SlotMap:
    """Who has which slot. Never changed: what is learnt makes a new one."""

    owners: tuple[Address | None, ...] = (None,) * SLOTS
    replicas: frozenset[Address] = frozenset()

    @property
    def primaries(self) -> tuple[Address, ...]:
        """All that have slots, in the order of these."""
        return tuple(dict.fromkeys(owner for owner in self.owners if owner is not None))

    @property
    def whole(self) -> bool:
        """Whether every slot has an owner."""
        return None not in self.owners

    def moved(self, slot: int, owner: Address) -> SlotMap:
        """The map with one slot in other hands."""
        owners = list(self.owners)
        owners[slot] = owner
        return SlotMap(tuple(owners), self.replicas - {owner})


def read_slots(reply: Iterable[Sequence[Any]], asked: Address) -> SlotMap:
    """The map that `CLUSTER SLOTS` tells; `asked` is the node that was asked, which may leave out its own host."""
    owners: list[Address | None] = [None] * SLOTS
    replicas: set[Address] = set()
    for first, last, primary, *others in reply:
        owners[first : last + 1] = [_address(primary, asked)] * (last - first + 1)
        replicas |= {_address(other, asked) for other in others}
    return SlotMap(tuple(owners), frozenset(replicas))


def _address(node: Sequence[Any], asked: Address) -> Address:
    host, port = node[0], int(node[1])
    named = host.decode() if isinstance(host, bytes) else host
    return (named if named and named != "?" else asked[0], port)
