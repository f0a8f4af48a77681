"""`RateLimited`: so many starts in a time, over all workers.

    use_limit("sms", lambda job: RateLimit.per_minute(60).by(job.fields["account"]))

    middleware=[RateLimited("sms")]
    middleware=[RateLimited("sms", RateLimit.bucket(10, "1s"))]         the same in one place

A job that has to wait is given a turn of its own and snoozed until then, so a thousand of them do not come at once.
"""

from __future__ import annotations

import random
from datetime import timedelta

from delayq.core.errors import DelayqError
from delayq.core.limit_names import check_limit
from delayq.core.limiting import Admit, Admitted
from delayq.core.rate_limit import RateLimit
from delayq.jobs.middleware.limited import Limited, who_of
from delayq.jobs.middleware.questions import CALL, Steps
from delayq.jobs.middleware.rates import Definition, checked_definition, rates_of
from delayq.jobs.middleware.running_job import RunningJob
from delayq.jobs.registry import current

JITTER_MS = 20.0


class RateLimited(Limited):
    """Lets a job through when all rates of the limit do; a rate that does so is not used up when another does not.

    `rates` may be left out when `use_limit` defines them, here or later. `release_after`: snooze that long instead, and
    keep no turn. Raises `ConfigError` for a name or rates that cannot be used, when an undefined one is met too.
    """

    def __init__(
        self,
        name: str,
        rates: Definition = None,
        *,
        release_after: str | timedelta | None = None,
        drop: bool = False,
    ) -> None:
        super().__init__(release_after, drop=drop)
        self._name = check_limit(name)
        self._given = rates if rates is None else checked_definition(name, rates)
        self._registry = current()

    def __repr__(self) -> str:
        return f"RateLimited({self._name!r})"

    def steps(self, job: RunningJob) -> Steps:
        """Ask, then call the handler."""
        rates = self._rates(job)
        if not rates:
            return (yield CALL)
        lines_up = self._release_ms is None and not self._drop
        try:
            admitted: Admitted = yield Admit(who_of(job), self._name, rates, lines_up)
        except DelayqError as error:
            self._unasked(job, self._name, error)
        if not admitted.passed:
            jitter_ms = random.uniform(0, min(JITTER_MS, *(rate.per_ms / rate.most for rate in rates)))
            return self._turn_away(job, self._name, rates[0].key, admitted.wait_ms + int(jitter_ms))
        return (yield CALL)

    def _rates(self, job: RunningJob) -> tuple[RateLimit, ...]:
        given = self._registry.limit(self._name) if self._given is None else self._given
        return rates_of(self._name, given(job) if callable(given) else given)
