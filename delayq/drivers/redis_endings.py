"""From a worker's settlements to the calls that carry them out; what is on record of a job is read first."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from delayq.core.errors import BackendError
from delayq.core.outcome import DONE, stopped
from delayq.drivers.base import Settlement
from delayq.drivers.redis_shunned import Shunned
from delayq.redis import presence, settling
from delayq.redis.calls.call import Scope
from delayq.redis.connect import Connector
from delayq.redis.presence import Asked, Record
from delayq.redis.settling import Ending, SettleCall

log = logging.getLogger("delayq.worker")


class RedisEndings:
    """Of one consumer. `shunned` says whose queues are away, `now_ms` the server's time."""

    def __init__(
        self,
        connector: Connector,
        prefix: str,
        scope: Callable[[str], Scope],
        shunned: Shunned,
        now_ms: Callable[[], int],
    ) -> None:
        self._connector = connector
        self._prefix = prefix
        self._scope = scope
        self._shunned = shunned
        self._now_ms = now_ms

    def calls(self, settlements: Sequence[Settlement]) -> list[SettleCall]:
        """Calls whose numbers are those of the settlements.

        Without those of queues that are away: they would keep the others' waiting, and are settled later.
        """
        if not self._shunned.any_away:
            return self._calls(settlements)
        away = self._shunned.away
        near = [n for n, given in enumerate(settlements) if away(given.delivery.queue) is None]
        calls = self._calls([settlements[n] for n in near])
        return [one._replace(numbers=[near[n] for n in one.numbers]) for one in calls]

    def _calls(self, settlements: Sequence[Settlement]) -> list[SettleCall]:
        done = [given.delivery for given in settlements if given.outcome is DONE]
        if len(done) == len(settlements):
            return settling.done(self._scope, done)
        endings = [
            Ending(job.queue, job.id, job.entry, b"" if job.unreadable else job.raw, given.outcome)
            for given in settlements
            for job in (given.delivery,)
        ]
        asked = {
            n: settling.asked(end)
            for n, end in enumerate(endings)
            if end.outcome is not DONE and settling.wants_record(end)
        }
        records = self._records(asked)
        for n in asked:
            if records[n].asked_to_stop and stopped(endings[n].outcome) is not endings[n].outcome:
                log.info("job %s was asked to stop meanwhile: it is not tried again", endings[n].id)
        return settling.calls(self._scope, endings, records, self._now_ms())

    def _records(self, jobs: Mapping[int, Asked]) -> Mapping[int, Record]:
        """What is on record for these jobs, read in one round trip; jobs that succeeded need none."""
        if not jobs:
            return {}
        read = partial(presence.records, self._prefix, list(jobs.values()))
        try:
            return dict(zip(jobs, self._connector.call(read, safe=True, reads=True), strict=True))
        except BackendError as error:
            for asked in jobs.values() if error.apart else ():
                self._shunned.met(asked.queue, error)
            raise
