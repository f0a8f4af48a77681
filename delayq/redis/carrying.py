"""What relays send: a batch that somebody else wrote, and that may be sent again much later.

The jobs of such a batch may have been done and forgotten when it is sent again, after a crash. So it carries a `once`
token for a week: whoever sends the same batch again gets the first answer, and makes no job.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from delayq.core.spec import Prepared
from delayq.core.states import OnConflict
from delayq.core.views import JobRef
from delayq.redis.calls import produce
from delayq.redis.calls.call import Command, Scope
from delayq.redis.placing import Batch, put, token_of
from delayq.redis.verbs import Flow, Verbs

WEEK_MS: Final = 7 * 86_400_000
HOUR_MS: Final = 3_600_000


def carry(verbs: Verbs, jobs: Sequence[Prepared], on_conflict: OnConflict, token: str) -> Flow[list[JobRef]]:
    """One script call in each shard for jobs of one queue.

    `token` is the batch's own, the same whenever it is sent.
    """
    queue = jobs[0].queue
    yield from verbs.register(queue)

    def make(scope: Scope, some: Sequence[Prepared]) -> list[Batch]:
        mine = token if len(some) == len(jobs) else token_of(token, some)
        return [Batch(produce.schedule(scope, some, on_conflict, mine, once_ms=WEEK_MS), some)]

    return (yield from put(verbs, queue, jobs, make))


def carried(verbs: Verbs, queue: str, token: str) -> Flow[None]:
    """The batch is gone from where it was written: its token need only outlive a send that is still under way."""
    yield Command(("PEXPIRE", verbs.scope(queue).keys.once(token), HOUR_MS), int)
