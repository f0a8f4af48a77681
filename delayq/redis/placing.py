"""Puts jobs into the shards they belong to. A generator like those of `verbs`, which it is given.

Every call says by which layout the shard was chosen. A shard that knows a newer one does nothing and answers with it;
then the layout is learned, and what is left is placed anew. While jobs may lie by earlier numbers of shards, they are
asked for there first. That call leaves the layout behind, so that no client with an older one can make the job there
afterwards; only then is it made where it belongs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple
from zlib import crc32

from delayq.core.errors import InvalidInput
from delayq.core.names import made_here
from delayq.core.shards import key_of, number_for, shard_of
from delayq.core.spec import Prepared
from delayq.core.states import Answer
from delayq.core.views import JobRef
from delayq.redis.calls.call import Call, Scope
from delayq.redis.calls.produce import Scheduled

if TYPE_CHECKING:
    from delayq.redis.verbs import Flow, Verbs

UNDER_WAY: Final = 8
"""Calls sent before the first answer is read: the server works while we pack and unpack."""


class Batch(NamedTuple):
    """Some jobs and the call that schedules them in one shard."""

    call: Call[Scheduled]
    jobs: Sequence[Prepared]


Make = Callable[[Scope, Sequence[Prepared]], Iterable[Batch]]
"""The calls for jobs of one shard."""


def put(
    verbs: Verbs,
    queue: str,
    jobs: Sequence[Prepared],
    make: Make,
    *,
    under_way: int = UNDER_WAY,
    strict: bool = False,
) -> Flow[list[JobRef]]:
    """Schedule jobs of one queue, so many calls under way at a time; a reference for each, in order.

    `strict` refuses a job with two keys on a sharded queue. What follows another job is not refused: it has no caller.
    """
    found: dict[int, JobRef] = {}
    if (layout := verbs.layouts.of(queue)).listed == 1:
        refs = yield from _straight(verbs, make(verbs.shard(queue, layout), jobs), under_way)
        if len(refs) == len(jobs):
            return refs
        found.update(enumerate(refs))
    while len(found) < len(jobs):
        layout = verbs.layouts.of(queue)
        if strict and layout.spread:
            _refuse_two_keys(jobs)
        for count in (*layout.before, layout.count):
            left = [n for n in range(len(jobs)) if n not in found]
            shards: dict[int, list[int]] = {}
            for n in left:
                shards.setdefault(number_for(key_of(jobs[n].id, jobs[n].digest), count), []).append(n)
            asks = count != layout.count
            scopes = {number: verbs.shard(shard_of(queue, number), layout, asks=asks) for number in shards}
            rounds = ((shards[m], make(scopes[m], [jobs[n] for n in shards[m]])) for m in sorted(shards))
            if not (yield from _round(verbs, rounds, found, under_way)):
                break
    return [found[n] for n in range(len(jobs))]


def _straight(verbs: Verbs, made: Iterable[Batch], under_way: int) -> Flow[list[JobRef]]:
    """All jobs into the only shard, without looking at each; those before the shard knew of others."""
    refs: list[JobRef] = []
    batches = iter(made)
    while some := list(islice(batches, under_way)):
        answers: list[Scheduled] = (
            (yield tuple(batch.call for batch in some)) if len(some) > 1 else [(yield some[0].call)]
        )
        for batch, scheduled in zip(some, answers, strict=True):
            queue = batch.jobs[0].queue
            if scheduled.moved is not None:
                verbs.layouts.learn(queue, scheduled.moved)
                return refs
            if scheduled.new_queue:
                yield from verbs.register_anew(queue)
            refs += scheduled.refs
    return refs


def _round(
    verbs: Verbs,
    rounds: Iterable[tuple[list[int], Iterable[Batch]]],
    found: dict[int, JobRef],
    under_way: int,
) -> Flow[bool]:
    """Send what was made for each shard; False when one of them knew a newer layout."""
    pairs = _numbered(rounds)
    while some := list(islice(pairs, under_way)):
        stays = True
        calls = tuple(batch.call for _, batch in some)
        answers: list[Scheduled] = (yield calls) if len(calls) > 1 else [(yield calls[0])]
        for (numbers, batch), scheduled in zip(some, answers, strict=True):
            queue = batch.jobs[0].queue
            if scheduled.moved is not None:
                verbs.layouts.learn(queue, scheduled.moved)
                stays = False
                continue
            if scheduled.new_queue:
                yield from verbs.register_anew(queue)
            found.update((n, ref) for n, ref in zip(numbers, scheduled.refs, strict=True) if is_there(ref))
        if not stays:
            return False
    return True


def _numbered(rounds: Iterable[tuple[list[int], Iterable[Batch]]]) -> Iterator[tuple[list[int], Batch]]:
    """Each batch with the numbers of its jobs."""
    for numbers, batches in rounds:
        start = 0
        for batch in batches:
            yield numbers[start : start + len(batch.jobs)], batch
            start += len(batch.jobs)


def is_there(ref: JobRef) -> bool:
    """Whether the job was made or found; not, when it was only asked for and is elsewhere or nowhere."""
    return ref.outcome is not Answer.UNKNOWN


def _refuse_two_keys(jobs: Iterable[Prepared]) -> None:
    """Raises `InvalidInput` for an id of the caller's beside a unique key: on a sharded queue only one says where."""
    for job in jobs:
        if job.own_id and job.digest and not made_here(job.id):
            raise InvalidInput(
                f"The job {job.id!r} has an id of yours and a unique key, and the queue {job.queue!r} is sharded: "
                "each of both would put it into another shard.",
                hint="Leave one of them out; the unique key alone keeps a second one away too.",
            )


def token_of(token: str, jobs: Sequence[Prepared]) -> str:
    """The token of one of several calls that share a token: it belongs to these jobs and no others."""
    return f"{token}.{crc32(' '.join(job.id for job in jobs).encode()):08x}"
