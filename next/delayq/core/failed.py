"""Which failed jobs are meant, and how fast they are retried."""

import re
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from typing import Final

import msgspec

from delayq.core.display import shown
from delayq.core.errors import InvalidInput
from delayq.core.failure_groups import check_signature, signature_of
from delayq.core.times import duration_ms, instant_ms, is_instant
from delayq.core.views import JobInfo

Moment = str | datetime | timedelta
"""A point in time ('2026-11-21T15:00:00Z', an aware datetime), or how long ago ('2h', a timedelta)."""

_RATE: Final = re.compile(r"([1-9][0-9]{0,5})/([smh])")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600}


class FailedFilter(msgspec.Struct, frozen=True):
    """The failed jobs whose name fits a pattern ('order.*'; None = any), and that failed in a span of time.

    `signature`: only those of one group; None = of any.
    """

    name: str | None
    since_ms: int
    until_ms: int
    signature: str | None = None

    @property
    def cursor(self) -> str:
        """Where the list of failed jobs begins. A space sorts before every id."""
        return f"{self.since_ms}  " if self.since_ms else ""

    def fits(self, job: JobInfo) -> bool:
        """Whether a failed job is meant, by its name."""
        return self.name is None or fnmatchcase(job.name, self.name)

    def fits_failure(self, job: JobInfo) -> bool:
        """Whether a failed job is meant, by its failure."""
        return self.signature is None or signature_of(job) == self.signature

    def is_over(self, job: JobInfo) -> bool:
        """Whether this job, and with it all that failed later, failed after the end."""
        return (job.failed_ms or 0) > self.until_ms


def failed_filter(
    *, name: str | None, since: Moment | None, until: Moment | None, signature: str | None = None, now_ms: int
) -> FailedFilter:
    """Read the bounds. Without `until`, what fails from now on is not meant. Raises InvalidInput."""
    since_ms = 0 if since is None else _moment_ms(since, now_ms, "since")
    until_ms = now_ms if until is None else _moment_ms(until, now_ms, "until")
    if since_ms > until_ms:
        raise InvalidInput(
            f"since {shown(str(since))} is after until {shown(str(until or 'now'))}.",
            hint="Exchange them.",
            field="since",
        )
    return FailedFilter(name, since_ms, until_ms, None if signature is None else check_signature(signature))


def spacing(rate: str | None) -> float:
    """Return the seconds between two retries at a rate such as '10/s', '600/m' or '5000/h'. Raises InvalidInput."""
    if rate is None:
        return 0.0
    match = _RATE.fullmatch(rate)
    if match is None:
        raise InvalidInput(f"rate {shown(rate)} is no rate.", hint="Write 10/s, 600/m or 5000/h.", field="rate")
    return _SECONDS[match[2]] / int(match[1])


def _moment_ms(moment: Moment, now_ms: int, field: str) -> int:
    if is_instant(moment):
        return instant_ms(moment, now_ms=now_ms, field=field)
    try:
        return max(now_ms - duration_ms(moment, field=field), 0)
    except InvalidInput as error:
        raise InvalidInput(error.message, hint="Write 2h, for 2h ago, or 2026-11-21T15:00:00Z.", field=field) from None
