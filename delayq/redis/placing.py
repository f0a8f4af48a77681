"""Puts jobs into the shards they belong to. A generator like those of `verbs`, which it is given.

Every call says by which layout the shard was chosen. A shard that knows a newer one does nothing and answers with it;
then the layout is learned, and what is left is placed anew. While jobs may lie by earlier numbers of shards, they are
asked for there first. That call leaves the layout behind, so that no client with an older one can make the job there
afterwards; only then is it made where it belongs.

A job whose queue is forwarded is asked for in that queue first, in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar
from zlib import crc32

from delayq.core.durability import MEMORY, Durability
from delayq.core.errors import InvalidInput
from delayq.core.names import made_here
from delayq.core.shards import key_of, number_for, shard_of
from delayq.core.spec import Prepared
from delayq.core.states import Answer
from delayq.core.views import JobRef
from delayq.redis.calls.call import Call, Scope
from delayq.redis.calls.produce import NOT_STORED, Scheduled, stored
from delayq.redis.durable import Durable
from delayq.redis.finding import taken

if TYPE_CHECKING:
    from delayq.redis.verbs import Flow, Verbs

T = TypeVar("T")

UNDER_WAY: Final = 8
"""Calls sent before the first answer is read: the server works while we pack and unpack."""


class Batch(NamedTuple):
    """Some jobs and the call that schedules them in one shard. One of the short way says how it is made in `full`."""

    call: Call[Scheduled]
    jobs: Sequence[Prepared]
    full: Callable[[], Call[Scheduled]] | None = None


@dataclass(slots=True)
class Way:
    """How calls are sent: plainly, or each shard's until they are as safe as `wanted`.

    `missing` tells what was not confirmed first, and `asked` what had been asked for there. A shard that fell short is
    not waited for again; others may lie elsewhere, so they are, but briefly. `short` are the jobs that were stored and
    not confirmed.
    """

    durable: Durable
    wanted: Durability = MEMORY
    missing: str = ""
    asked: Durability = MEMORY
    short: list[JobRef] = field(default_factory=list)
    _fell_short: set[str] = field(default_factory=set)

    def send(self, asked: Sequence[tuple[Scope, Batch]]) -> Flow[list[Scheduled]]:
        """Batches that may be under way together, to any shards."""
        if not self.wanted.waits:
            return (yield from _plainly([batch for _, batch in asked]))
        answers: list[Scheduled] = []
        for shard, some in groupby(asked, key=lambda pair: pair[0].queue):
            pairs = list(some)
            batches = [batch for _, batch in pairs]
            if shard in self._fell_short:
                got = yield from _plainly(batches)
            else:
                brief, calls = bool(self.missing), [batch.call for batch in batches]
                got, missing = yield from self.durable.answers(pairs[0][0], calls, self.wanted, stored, brief=brief)
                self._note(shard, missing)
            if shard in self._fell_short:
                self.short += [ref for scheduled in got for ref in scheduled.refs if ref.outcome not in NOT_STORED]
            answers += got
        return answers

    def one(self, scope: Scope, call: Call[T], counts: Callable[[T], bool]) -> Flow[T]:
        """One call; `counts` says of its answer whether anything was changed."""
        answer, missing = yield from self.durable.answer(scope, call, self.wanted, counts)
        self._note(scope.queue, missing)
        return answer

    def check(self, refs: Sequence[JobRef]) -> None:
        """Raises `NotConfirmed` when some of these jobs are stored and not as safe as was asked."""
        self.durable.check(refs, self.short or refs, self.asked, self.missing)

    def _note(self, shard: str, missing: str) -> None:
        if missing:
            self._fell_short.add(shard)
        if missing and not self.missing:
            self.missing, self.asked = missing, self.wanted


def _plainly(batches: Sequence[Batch]) -> Flow[list[Scheduled]]:
    """Batches that may be under way together, and nothing is waited for."""
    calls = tuple(batch.call for batch in batches)
    answers: list[Scheduled] = [(yield calls[0])] if len(calls) == 1 else (yield calls)
    for n, (batch, scheduled) in enumerate(zip(batches, answers, strict=True)):
        if batch.full and scheduled.undone:
            answers[n] = yield batch.full()
    return answers


Make = Callable[[Scope, Sequence[Prepared]], Iterable[Batch]]
"""The calls for jobs of one shard."""


def put(
    verbs: Verbs,
    queue: str,
    jobs: Sequence[Prepared],
    make: Make,
    way: Way | None = None,
    *,
    under_way: int = UNDER_WAY,
    strict: bool = False,
) -> Flow[list[JobRef]]:
    """Schedule jobs of one queue, so many calls under way at a time; a reference for each, in order.

    `strict` refuses a job with two keys on a sharded queue. What follows another job is not refused: it has no caller.
    """
    way = way or Way(verbs.durable)
    found = yield from _where_forwarded(verbs, jobs, make, way, under_way)
    if not found and (layout := verbs.layouts.of(queue)).listed == 1:
        scope = verbs.shard(queue, layout)
        refs = yield from _straight(verbs, scope, make(scope, jobs), way, under_way)
        if len(refs) == len(jobs):
            return refs
        found.update(enumerate(refs))
    while len(found) < len(jobs):
        if strict and verbs.layouts.of(queue).spread:
            _refuse_two_keys(jobs)
        yield from _by_layout(verbs, queue, dict(enumerate(jobs)), found, make, way, under_way)
    return [found[n] for n in range(len(jobs))]


def _by_layout(
    verbs: Verbs,
    queue: str,
    jobs: Mapping[int, Prepared],
    found: dict[int, JobRef],
    make: Make,
    way: Way,
    under_way: int,
    *,
    asks: bool = False,
) -> Flow[bool]:
    """Place by number what is not `found` yet; False when a shard knew a newer layout. `asks`: make no job."""
    layout = verbs.layouts.of(queue)
    for count in (*layout.before, layout.count):
        shards: dict[int, list[int]] = {}
        for n, job in jobs.items():
            if n not in found:
                shards.setdefault(number_for(key_of(job.id, job.digest), count), []).append(n)
        only_ask = asks or count != layout.count
        scopes = {number: verbs.shard(shard_of(queue, number), layout, asks=only_ask) for number in shards}
        rounds = ((scopes[m], shards[m], make(scopes[m], [jobs[n] for n in shards[m]])) for m in sorted(shards))
        if not (yield from _round(verbs, rounds, found, way, under_way)):
            return False
    return True


def _where_forwarded(
    verbs: Verbs, jobs: Sequence[Prepared], make: Make, way: Way, under_way: int
) -> Flow[dict[int, JobRef]]:
    """References, by number, of the jobs that are still in the queue that is forwarded: they are kept or changed there.

    Only a job with an id of the caller's or a unique key can be there.
    """
    found: dict[int, JobRef] = {}
    asked = {n: job for n, job in enumerate(jobs) if job.forwarded_from and (job.own_id or job.digest)}
    for queue in sorted({job.forwarded_from for job in asked.values()}):
        mine = {n: job.in_queue(queue) for n, job in asked.items() if job.forwarded_from == queue}
        numbers = list(mine)
        there = yield from taken(verbs, queue, list(mine.values()))
        mine = {numbers[place]: mine[numbers[place]] for place in there}
        while mine and not (yield from _by_layout(verbs, queue, mine, found, make, way, under_way, asks=True)):
            pass
    return found


def _straight(verbs: Verbs, scope: Scope, made: Iterable[Batch], way: Way, under_way: int) -> Flow[list[JobRef]]:
    """All jobs into the only shard, without looking at each; those before the shard knew of others."""
    refs: list[JobRef] = []
    batches = iter(made)
    while some := list(islice(batches, under_way)):
        for scheduled in (yield from way.send([(scope, batch) for batch in some])):
            if scheduled.moved is not None:
                verbs.layouts.moved(scope.queue, scheduled.moved)
                return refs
            if scheduled.new_queue:
                yield from verbs.register_anew(scope.queue)
            refs += scheduled.refs
    return refs


class _Part(NamedTuple):
    """A batch on its way: its shard, and the numbers of its jobs."""

    scope: Scope
    numbers: list[int]
    batch: Batch


def _round(
    verbs: Verbs,
    rounds: Iterable[tuple[Scope, list[int], Iterable[Batch]]],
    found: dict[int, JobRef],
    way: Way,
    under_way: int,
) -> Flow[bool]:
    """Send what was made for each shard; False when one of them knew a newer layout."""
    parts = _parts(rounds)
    while some := list(islice(parts, under_way)):
        stays = True
        answers = yield from way.send([(part.scope, part.batch) for part in some])
        for part, scheduled in zip(some, answers, strict=True):
            if scheduled.moved is not None:
                verbs.layouts.moved(part.scope.name, scheduled.moved)
                stays = False
                continue
            if scheduled.new_queue:
                yield from verbs.register_anew(part.scope.name)
            found.update((n, ref) for n, ref in zip(part.numbers, scheduled.refs, strict=True) if is_there(ref))
        if not stays:
            return False
    return True


def _parts(rounds: Iterable[tuple[Scope, list[int], Iterable[Batch]]]) -> Iterator[_Part]:
    for scope, numbers, batches in rounds:
        start = 0
        for batch in batches:
            yield _Part(scope, numbers[start : start + len(batch.jobs)], batch)
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
