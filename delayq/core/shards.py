"""How a queue is spread over shards: which there are, and which one a job belongs to.

A shard is a part of a queue with keys, a stream and a mover's tick of its own. The first is called as the queue and
keeps its keys, `{orders}`; the others are called `orders#1`, `orders#2`, … and have theirs, `{orders#1}`. So a queue
that was never sharded is one whose only shard is the first.

    orders  4 shards      orders   orders#1   orders#2   orders#3
                             0         1          2          3        = CRC-32 of the key, modulo the number of shards

The key of a job is its id, or its unique key when it has one: who may not be there twice must meet in one place.

How many there are stands in `meta` of each shard as `shards`, and the first shard's counts:

    1                        never anything else
    1763740800123:4<1        4 since that time (the epoch), 1 before: jobs may still lie where one shard put them
    1763741000456:2<4<1      2, before that 4 and 1

A higher epoch is newer. What `schedule` does with that is told in docs/adr/0024.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final
from zlib import crc32

import msgspec

from delayq.core.errors import InvalidInput
from delayq.core.names import can_name_queue

SIGN: Final = "#"
MOST: Final = 256
"""Shards of one queue."""
MOST_BEFORE: Final = 8
"""Earlier numbers of shards that jobs may still lie by."""
REST_MS: Final = 7 * 24 * 3_600_000
"""A change ends no sooner: so long Redis remembers, where it was given, the answer to a relay."""

_CHANGED: Final = re.compile(r"([1-9]\d{0,15}):([1-9]\d{0,2})((?:<[1-9]\d{0,2}){0,8})")
_CURSOR: Final = re.compile(r"#(\d{1,3}) (.*)")
_SHARD: Final = re.compile(r"(.+)#([1-9]\d{0,2})")


class Layout(msgspec.Struct, frozen=True):
    """How many shards a queue has, since when (epoch ms; 0 = ever since), and by which numbers jobs may still lie."""

    count: int = 1
    epoch: int = 0
    before: tuple[int, ...] = ()

    def __str__(self) -> str:
        """As `meta` holds it."""
        return "<".join([f"{self.epoch}:{self.count}", *map(str, self.before)]) if self.epoch else "1"

    @property
    def listed(self) -> int:
        """How many shards may hold jobs."""
        return max(self.count, *self.before) if self.before else self.count

    @property
    def spread(self) -> bool:
        """Whether there is more than one shard to look into."""
        return self.listed > 1

    def shards(self, queue: str) -> tuple[str, ...]:
        """The names of all shards that may hold jobs, the first one first."""
        return tuple(shard_of(queue, number) for number in range(self.listed))

    def changed(self, count: int, at_ms: int, besides: Sequence[int] = ()) -> Layout:
        """The next layout, where jobs may lie by the numbers `besides` too.

        Raises `InvalidInput` for a number that cannot be.
        """
        before = tuple(dict.fromkeys(number for number in (self.count, *self.before, *besides) if number != count))
        if not 1 <= count <= MOST:
            raise InvalidInput(f"A queue has 1 to {MOST} shards, not {count}.")
        if len(before) > MOST_BEFORE:
            raise InvalidInput(
                f"Jobs may still lie by {len(before)} earlier numbers of shards, and no more can be kept apart.",
                hint="Go back to one of them, or wait: `delayq queue show` tells when the change is over.",
            )
        return Layout(count, max(at_ms, self.epoch + 1), before)

    def ended(self, at_ms: int) -> Layout:
        """The layout when nothing lies by an earlier number any more."""
        return Layout(self.count, max(at_ms, self.epoch + 1))


PLAIN: Final = Layout()
"""Of a queue that was never sharded."""


def read_layout(text: str) -> Layout:
    """What `meta` holds; what is no layout reads as that of a queue that was never sharded."""
    found = _CHANGED.fullmatch(text)
    if found is None:
        return PLAIN
    count, *before = (int(number) for number in (found[2], *found[3].split("<")[1:]))
    return Layout(count, int(found[1]), tuple(before)) if max(count, *before, 1) <= MOST else PLAIN


def shard_of(queue: str, number: int) -> str:
    """What a shard of a queue is called."""
    return f"{queue}{SIGN}{number}" if number else queue


def queue_of(shard: str) -> str:
    """The queue a shard belongs to. No queue has the sign in its name."""
    return shard.partition(SIGN)[0]


def number_of(shard: str) -> int:
    """Which shard of its queue it is."""
    found = _SHARD.fullmatch(shard)
    return int(found[2]) if found else 0


def is_shard(name: str) -> bool:
    """Whether a name is that of a shard beside the first; whether its queue can be called so is another question."""
    return _SHARD.fullmatch(name) is not None


def names_a_shard(name: str) -> bool:
    """Whether it can be the name of a queue, or of a shard of one."""
    return can_name_queue(queue_of(name)) and (SIGN not in name or is_shard(name))


def key_of(job_id: str, lock: str) -> str:
    """What decides where a job lies. `lock` is its unique key as `schedule` is told it ('' = none)."""
    return lock.partition(".")[0] or job_id


def number_for(key: str, count: int) -> int:
    """The shard of a key, among so many."""
    return crc32(key.encode()) % count


def read_cursor(cursor: str) -> tuple[int, str]:
    """Where a page of a sharded queue goes on: which shard, and the cursor there ('' = from its start)."""
    found = _CURSOR.fullmatch(cursor)
    return (int(found[1]), found[2]) if found else (0, cursor)


def next_cursor(number: int, after: str, listed: int) -> str:
    """The cursor behind a page of one shard; `after` '' = nothing is left there. As it is, where there is one shard."""
    if listed == 1:
        return after
    if not after:
        number += 1
    return f"{SIGN}{number} {after}" if number < listed else ""


def all_shards(queues: Sequence[str], known: Iterable[str]) -> tuple[str, ...]:
    """These queues, each followed by those of its shards that are among the `known` names."""
    beside: dict[str, list[str]] = {}
    for name in sorted(filter(is_shard, known), key=number_of):
        beside.setdefault(queue_of(name), []).append(name)
    return tuple(name for queue in queues for name in (queue, *beside.get(queue, ())))


def in_turn(shards: Mapping[str, Sequence[str]], queues: Sequence[str], turn: int) -> list[str]:
    """The shards of queues, queue by queue; in each queue another one first at each turn."""
    found: list[str] = []
    for queue in queues:
        mine = shards[queue]
        start = turn % len(mine) if mine else 0
        found += [*mine[start:], *mine[:start]]
    return found
