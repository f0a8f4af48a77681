"""Calls that read and restore the number of shards of a queue.

The field `shards` of `meta` has this number in each shard. Only the number in the first shard is valid.
"""

from typing import Final

from delayq.core.shards import MAX_SHARDS
from delayq.redis.calls.call import Call, command, read
from delayq.redis.keys import Keys

CHANGING: Final = 1_000
"""Added to the field `shards` during a change of the number. No client has the sum as its number, so no job can be
stored during the change.
"""


def read_shard_count(keys: Keys, queue: str) -> Call[int]:
    """Read the number of shards of a queue."""
    return read("HGET", keys.of_queue(queue, "meta"), "shards", parse=shard_count)


def restore_shard_count(keys: Keys, shard: str, count: int) -> Call[bool]:
    """Write the number of shards into a shard, unless the shard has a number."""
    return command("HSETNX", keys.of_queue(shard, "meta"), "shards", count, parse=bool)


def shard_count(reply: bytes | None) -> int:
    """Return the number of shards from the field `shards` of `meta`. During a change, return the old number.

    A missing or invalid number counts as 1.
    """
    count = int(reply) % CHANGING if reply is not None and reply.isdigit() and len(reply) <= 4 else 1
    return count if 1 <= count <= MAX_SHARDS else 1
