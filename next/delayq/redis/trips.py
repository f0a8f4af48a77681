"""Cuts new jobs into lists for one call each: jobs of one shard, and not too many of them.

If a unique job goes to a queue with several shards, its unique key decides the shard.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator

from delayq.core.encryption import KeyRing
from delayq.core.errors import InvalidInput
from delayq.core.ids import new_id
from delayq.core.job_spec import NewJob, with_id
from delayq.core.shards import shard_number, shard_of
from delayq.core.unique import digest_of
from delayq.redis.calls.call import MAX_BYTES, MAX_ROWS
from delayq.redis.shard_counts import ShardCounts

Row = tuple[int, NewJob]
"""A job and its position in the list that the program passed."""


def in_trips(
    rows: Iterable[Row], shards: ShardCounts, key_ring: KeyRing | None = None
) -> Iterator[tuple[str, int, list[Row]]]:
    """Cut jobs, with their positions, into lists for one call each.

    Each list comes with its shard and the number of shards of the queue. A list has at most 250 jobs, and at most 1 MB
    unless a single job is larger. Raises InvalidInput, and the errors of `with_id`.

    `key_ring`: encrypts payloads again for new ids, because an encrypted payload belongs to one id. A job gets a new id
    if its id is not in the shard of its unique key.
    """
    by_queue: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_queue[row[1].queue].append(row)
    for queue, of_queue in by_queue.items():
        count = shards.known(queue)
        for shard, of_shard in _by_shard(queue, count, of_queue, key_ring).items():
            for start in range(0, len(of_shard), MAX_ROWS):
                for trip in _not_too_large(of_shard[start : start + MAX_ROWS]):
                    yield shard, count, trip


def _in_shard_of_key(job: NewJob, count: int, key_ring: KeyRing | None) -> NewJob:
    """Give a unique job a new id, if its id is not in the shard of its key.

    Raises InvalidInput if the caller chose the id, even if this id is in the right shard.
    """
    if not job.lock:
        return job
    if job.has_own_id:
        raise InvalidInput(
            f"The job has the id {job.id!r} and a unique key, but the queue {job.queue!r} has {count} shards. "
            "There, only one of the two can decide the shard.",
            hint="Leave out the id or the unique key.",
            field="id",
        )
    number = shard_number(digest_of(job.lock), count)
    job_id = job.id
    while shard_number(job_id, count) != number:
        job_id = new_id()
    return job if job_id == job.id else with_id(job, job_id, key_ring)


def _by_shard(queue: str, count: int, rows: list[Row], key_ring: KeyRing | None) -> dict[str, list[Row]]:
    if count == 1:
        return {queue: rows}
    by_shard: defaultdict[str, list[Row]] = defaultdict(list)
    for position, given in rows:
        job = _in_shard_of_key(given, count, key_ring)
        by_shard[shard_of(queue, job.id, count)].append((position, job))
    return by_shard


def _not_too_large(rows: list[Row]) -> Iterable[list[Row]]:
    sizes = [len(job.envelope) for _, job in rows]
    first = size = 0
    for position, more in enumerate(sizes if sum(sizes) > MAX_BYTES else ()):
        size += more
        if size > MAX_BYTES and position > first:
            yield rows[first:position]
            first, size = position, more
    yield rows[first:]
