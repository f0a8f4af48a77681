"""Ids of yours that a batch is to give its members: each once, and none that another job has.

A batch counts members by their ids. One whose id is another job's would be waited for, and counted when that one ends.
"""

from __future__ import annotations

from collections.abc import Sequence

from delayq.core import follow
from delayq.core.envelope import Envelope
from delayq.core.errors import BadEnvelope, Conflict, InvalidInput
from delayq.core.follow import Placed
from delayq.core.followups import Link, Plan, Word
from delayq.core.names import made_here
from delayq.core.own_ids import is_the_same
from delayq.core.shown import shown
from delayq.core.spec import Prepared
from delayq.core.states import State
from delayq.redis.calls.call import Command, pages
from delayq.redis.calls.follow import Told
from delayq.redis.finding import every_shard
from delayq.redis.keys import Keys
from delayq.redis.verbs import Flow, Verbs

PAGE = 100
"""Ids asked for at once: whole envelopes come back of those that are taken."""


def refuse_taken(verbs: Verbs, batch: str, members: Sequence[Link]) -> Flow[None]:
    """Raises `InvalidInput` for an id that is given twice, `Conflict` for one that another job or batch has.

    Of one that was begun already with all its members no member is looked at: they may have gone since.
    """
    jobs, inner = list(follow.jobs_of(batch, members)), list(follow.plans_of(members))
    _refuse_twice(batch, jobs, inner)
    yield from _refuse_other_batches(verbs, batch, inner)
    queues: dict[str, list[Placed]] = {}
    for job in jobs:
        if not made_here(job.id) and not job.id.startswith(f"{batch}."):
            queues.setdefault(job.queue, []).append(job)
    if not queues or (yield from _is_sealed(verbs, batch)):
        return
    for queue, placed in queues.items():
        for scope in (yield from every_shard(verbs, queue)):
            for some in pages(placed, PAGE):
                words = ("HMGET", scope.keys.of("jobs"), *(job.id for job in some))
                found: list[bytes | None] = yield Command(words, list, True)
                for job, raw in zip(some, found, strict=True):
                    if raw is not None and _batch_of(raw) != job.batch:
                        raise Conflict(
                            f"The id {shown(job.id)} is taken by another job in the queue {shown(queue)}, so no member "
                            f"of the batch {shown(batch)} can have it; nothing was sent.",
                            hint="Give that member another id, or none.",
                        )


def _refuse_twice(batch: str, jobs: Sequence[Placed], inner: Sequence[Plan]) -> None:
    seen: set[tuple[str, str]] = {("batches", batch)}
    named = [(job.id, {(f"batch {job.batch}", job.id), (f"queue {job.queue}", job.id)}) for job in jobs]
    named += [(plan.id, {(f"batch {plan.batch}", plan.id), ("batches", plan.id)}) for plan in inner]
    for own_id, places in named:
        if places & seen:
            raise InvalidInput(
                f"The id {shown(own_id)} is given to two members of the batch; nothing was sent.",
                hint="Give each an id of its own, or none.",
            )
        seen |= places


def _refuse_other_batches(verbs: Verbs, batch: str, plans: Sequence[Plan]) -> Flow[None]:
    for plan in plans:
        if made_here(plan.id) or plan.id.startswith(f"{batch}."):
            continue
        key = Keys(verbs.options.prefix, f"batch:{plan.id}").of("plan")
        there: list[bytes | None] = yield Command(("HMGET", key, "plan", "origin"), list, True)
        if there[0] is not None and there[1] is not None and there[1].decode() != plan.origin:
            raise taken(plan.id)


def taken(batch: str) -> Conflict:
    """There is another batch of that id."""
    return Conflict(f"The id {shown(batch)} is taken by another batch.", hint="Give this one another id, or none.")


def _is_sealed(verbs: Verbs, batch: str) -> Flow[bool]:
    plan = Keys(verbs.options.prefix, f"batch:{batch}").of("plan")
    sealed: bool = yield Command(("HEXISTS", plan, "sealed_ms"), bool, True)
    return sealed


def became_of(
    verbs: Verbs, kept: Sequence[Prepared]
) -> Flow[tuple[list[Told], list[tuple[Prepared, Envelope | None]]]]:
    """What a batch must hear of members whose ids were taken when they were sent; and those that will not run.

    Its own were sent before; what became of them was told before, unless that was so long ago that the batch was
    forgotten. One whose id is another job's will not run: nobody may touch that one.
    """
    told: list[Told] = []
    passed_by: list[tuple[Prepared, Envelope | None]] = []
    for job in kept:
        _, info = yield from verbs.read(job.id, job.queue)
        there = info.envelope if info is not None else None
        part = follow.readable_part(there) if there is not None else None
        if info is None or there is None or part is None or not is_the_same(job.envelope, there):
            passed_by.append((job, there))
        elif info.state in (State.FAILED, State.COMPLETED):
            word = Word.FAILED if info.state is State.FAILED else Word.DONE
            told.append(Told(job.id, word, part.retried, part.spared))
    return told, passed_by


def _batch_of(raw: bytes) -> str | None:
    try:
        part = follow.part_of(raw)
    except BadEnvelope:
        return None
    return part.batch if part else None
