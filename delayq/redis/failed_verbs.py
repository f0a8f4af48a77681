"""The verbs on many failed jobs, without I/O: as `verbs`, and built on it.

The shells go through them page by page, so that whoever asked can look at each answer, and stop.
"""

from __future__ import annotations

from delayq.core.errors import Conflict, JobNotFound
from delayq.core.failed import FailedChoice, FailedOptions, choose
from delayq.core.states import State
from delayq.core.views import Page, Retried
from delayq.redis.calls import inspect
from delayq.redis.calls.call import Command, number
from delayq.redis.calls.produce import MAX_JOBS
from delayq.redis.keys import Keys
from delayq.redis.verbs import Flow, Verbs


class FailedVerbs:
    """What can be done with the failed jobs of one queue."""

    def __init__(self, verbs: Verbs) -> None:
        self._verbs = verbs

    def choose(self, options: FailedOptions, queue: str | None) -> Flow[FailedChoice]:
        """Which ones, by the server's time. The newest is asked for: a clock may have been set back since it failed."""
        now_ms = yield from self._verbs.server_ms()
        scope = self._verbs.scope(queue)
        failed = Keys(scope.options.prefix, scope.queue).of("failed")
        newest: list[bytes] = yield Command(("ZRANGE", failed, -1, -1), list, True)
        score: int | None = (yield Command(("ZSCORE", failed, newest[0]), number, True)) if newest else None
        return choose(options, now_ms, score or now_ms)

    def page(self, choice: FailedChoice, queue: str | None, cursor: str) -> Flow[Page]:
        """Some of them, in the order they failed in, and the cursor of the next page ('' at the end)."""
        page: Page = yield inspect.list_jobs(self._verbs.scope(queue), State.FAILED, cursor or choice.cursor, MAX_JOBS)
        over = any(map(choice.over, page.jobs))
        meant = (info for info in page.jobs if choice.has(info) and not choice.over(info))
        return Page(tuple(meant), "" if over else page.cursor)

    def retry(self, job_id: str, queue: str | None) -> Flow[Retried]:
        """One of them from the start. A refusal is an answer here: it keeps no other from it."""
        try:
            ref = yield from self._verbs.retry(job_id, queue)
        except (JobNotFound, Conflict) as error:
            return Retried(job_id, None, error)
        return Retried(job_id, ref, None)
