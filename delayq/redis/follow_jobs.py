"""Jobs that follow others, as what is sent: prepared, in chunks, each with a token that makes it one job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from delayq.core.follow import ONCE_MS
from delayq.core.followups import Send
from delayq.core.spec import Prepared
from delayq.core.states import Answer, OnConflict
from delayq.core.unique import word_of
from delayq.core.views import JobRef
from delayq.redis.calls import produce
from delayq.redis.calls.call import Call, Scope
from delayq.redis.placing import Batch, token_of


def prepared(job: Send) -> Prepared:
    """As `placing.put` takes it."""
    return Prepared(job.id, bytes(job.envelope), f"+{job.delay_ms}", word_of(job.unique), "", job.queue, own_id=True)


def schedule_once(scope: Scope, token: str, jobs: Sequence[Prepared]) -> Call[produce.Scheduled]:
    """One call for jobs of one shard."""
    return produce.schedule(scope, jobs, OnConflict.KEEP, token, once_ms=ONCE_MS)


def chunks(batch: str, scope: Scope, jobs: Sequence[Prepared]) -> Iterator[Batch]:
    """Members of a batch that belong to one shard, chunk by chunk."""
    for chunk in produce.chunks(jobs):
        yield Batch(schedule_once(scope, token_of(f"{batch}.{chunk[0].id}", chunk), chunk), chunk)


def each(batch: str, scope: Scope, jobs: Sequence[Prepared]) -> Iterator[Batch]:
    """As `chunks`, one by one."""
    return (Batch(schedule_once(scope, token_of(f"{batch}.{job.id}", [job]), [job]), [job]) for job in jobs)


def is_there(ref: JobRef, job: Send) -> bool:
    """Whether it was made, or its id is taken; not, when it has to wait for the owner of its unique key."""
    return ref.outcome is Answer.CREATED or ref.id == job.id
