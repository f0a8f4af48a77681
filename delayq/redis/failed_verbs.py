"""The verbs on many failed jobs, without I/O: as `verbs`, and built on it.

The shells go through them page by page, so that whoever asked can look at each answer, and stop.
"""

from __future__ import annotations

from msgspec import UNSET

from delayq.core.browsing import Sought
from delayq.core.envelope import LARGEST
from delayq.core.errors import Conflict, InvalidInput, JobNotFound, NotConfirmed
from delayq.core.failed import FailedChoice, FailedOptions, choose
from delayq.core.failure_groups import FailureGroups
from delayq.core.shards import next_cursor, read_cursor
from delayq.core.states import State
from delayq.core.views import JobRef, Page, Retried
from delayq.redis.browse import grouped, with_failures
from delayq.redis.calls import inspect
from delayq.redis.calls.call import Command, number
from delayq.redis.calls.produce import MAX_JOBS
from delayq.redis.finding import every_shard
from delayq.redis.hand_verbs import HandVerbs
from delayq.redis.verbs import Flow, Verbs

GROUPED = 10_000
"""Failed jobs that are looked at for groups, unless told otherwise."""


class FailedVerbs:
    """What can be done with the failed jobs of one queue."""

    def __init__(self, verbs: Verbs) -> None:
        self._verbs = verbs
        self._by_hand = HandVerbs(verbs)

    def choose(self, options: FailedOptions, queue: str | None) -> Flow[FailedChoice]:
        """Which ones, by the server's time. The newest is asked for: a clock may have been set back since it failed."""
        now_ms = yield from self._verbs.server_ms()
        scores: list[int] = []
        for scope in (yield from every_shard(self._verbs, self._verbs.scope(queue).queue)):
            failed = scope.keys.of("failed")
            newest: list[bytes] = yield Command(("ZRANGE", failed, -1, -1), list, True)
            score: int | None = (yield Command(("ZSCORE", failed, newest[0]), number, True)) if newest else None
            scores.append(score or 0)
        return choose(options, now_ms, max(scores) or now_ms)

    def page(self, choice: FailedChoice, queue: str | None, cursor: str) -> Flow[Page]:
        """Some of them, in the order they failed in, and the cursor of the next page ('' at the end).

        Of a sharded queue shard by shard.
        """
        scopes = yield from every_shard(self._verbs, self._verbs.scope(queue).queue)
        number, after = read_cursor(cursor)
        if number >= len(scopes):
            return Page((), "")
        page: Page = yield inspect.list_jobs(scopes[number], State.FAILED, after or choice.cursor, MAX_JOBS)
        over = any(map(choice.over, page.jobs))
        jobs = page.jobs
        if choice.signature is not None:
            jobs = yield from with_failures(scopes[number].keys.of("errors"), jobs)
        meant = (info for info in jobs if choice.has(info) and not choice.over(info))
        return Page(tuple(meant), next_cursor(number, "" if over else page.cursor, len(scopes)))

    def groups(self, options: FailedOptions, queue: str | None, looks: int) -> Flow[FailureGroups]:
        """Group those that are meant, the newest first, of one queue or all."""
        if looks < 1:
            raise InvalidInput(f"looks is {looks}; at least one job must be looked at.", hint=f"looks={GROUPED}")
        choice = choose(options, (yield from self._verbs.server_ms()), LARGEST)
        queues = (yield from self._verbs.queues()) if queue is None else [self._verbs.scope(queue).queue]
        sought = Sought(
            State.FAILED,
            tuple(queues),
            name=choice.name,
            since_ms=choice.since_ms or None,
            until_ms=choice.until_ms,
            newest=True,
            looks=looks,
            signature=choice.signature,
        )
        return (yield from grouped(self._verbs, sought))

    def retry(self, job_id: str, queue: str | None, data: object = UNSET) -> Flow[Retried]:
        """One of them from the start. A refusal is an answer here, as is one that is not as safe as the queue asks."""
        try:
            ref = yield from self._by_hand.retry(job_id, queue, data)
        except (JobNotFound, Conflict) as error:
            return Retried(job_id, None, error)
        except NotConfirmed as error:
            [done] = error.done
            return Retried(job_id, done if isinstance(done, JobRef) else None, error)
        return Retried(job_id, ref, None)
