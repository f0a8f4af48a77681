"""Shards: the parts into which a large queue is divided.

Each shard has keys of its own, so each shard can be on another node of a Redis Cluster.

The first shard has the name of the queue. The names of the other shards end in a number: `orders`, `orders#1`,
`orders#2`. A queue that is not divided has only the first shard. Names with a number are used only inside delayq; users
see the name of the queue.

The id of a job decides its shard: the CRC-32 of the id, modulo the number of shards. For a job with a unique key, the
digest of the key decides the shard, and the job gets an id that belongs to this shard.
"""

import zlib
from typing import Final

from delayq.core.job_spec import check_whole_number

MAX_SHARDS: Final = 64

_SIGN: Final = "#"


def shard_names(queue: str, count: int) -> list[str]:
    """Return the names of all shards of a queue, the first one first."""
    return [queue, *[f"{queue}{_SIGN}{number}" for number in range(1, count)]]


def shard_number(job_id: str, count: int) -> int:
    """Return the number of the shard of a job; 0 = the first shard."""
    return zlib.crc32(job_id.encode()) % count


def shard_of(queue: str, job_id: str, count: int) -> str:
    """Return the name of the shard of a job."""
    number = shard_number(job_id, count)
    return f"{queue}{_SIGN}{number}" if number else queue


def queue_of(shard: str) -> str:
    """Return the queue of a shard."""
    return shard.partition(_SIGN)[0]


def check_shards(count: int) -> int:
    """Return a number of shards, 1 to 64; raises InvalidInput for another value."""
    return check_whole_number("shards", count, least=1, most=MAX_SHARDS)
