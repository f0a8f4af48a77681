"""The selection of failed jobs for bulk operations, and the rate of bulk retries."""

import re
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from typing import Final

import msgspec

from delayq.core.display import shown
from delayq.core.errors import InvalidInput, PayloadLost
from delayq.core.failure_groups import check_signature, signature_of
from delayq.core.times import duration_ms, instant_ms, is_instant
from delayq.core.views import JobInfo

Moment = str | datetime | timedelta
"""A point in time ('2026-11-21T15:00:00Z', a datetime with a time zone), or an age ('2h', a timedelta)."""

_RATE: Final = re.compile(r"([1-9][0-9]{0,5})/([smh])")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600}


def no_payload(job: JobInfo, cannot: str) -> PayloadLost:
    """Return the error for a failed job without a readable envelope. `cannot`: what is impossible ('be retried')."""
    what = f"The payload of the job {job.id!r} is lost"
    if not job.is_lost:
        what = f"The envelope of the job {job.id!r} cannot be read"
    return PayloadLost(
        f"{what}, so the job cannot {cannot}.",
        hint=f"`delayq failed forget {job.id} --queue {job.queue}` deletes the job.",
    )


class FailedFilter(msgspec.Struct, frozen=True):
    """A filter for failed jobs.

    * `name`: a pattern for the job name, such as 'order.*'; None = any name.
    * `since_ms`, `until_ms`: the earliest and latest time of failure.
    * `signature`: the signature of a group of failed jobs; None = any group.
    """

    name: str | None
    since_ms: int
    until_ms: int
    signature: str | None = None

    @property
    def cursor(self) -> str:
        """The cursor at which the list of failed jobs begins.

        The cursor ends in a space, which sorts before every id.
        """
        return f"{self.since_ms}  " if self.since_ms else ""

    def fits(self, job: JobInfo) -> bool:
        """Return True if the name of the job matches."""
        return self.name is None or fnmatchcase(job.name, self.name)

    def fits_failure(self, job: JobInfo) -> bool:
        """Return True if the failure of the job belongs to the wanted group."""
        return self.signature is None or signature_of(job) == self.signature

    def is_over(self, job: JobInfo) -> bool:
        """Return True if the job failed after `until_ms`.

        All later jobs in the list then failed after `until_ms` too.
        """
        return (job.failed_ms or 0) > self.until_ms


def failed_filter(
    *, name: str | None, since: Moment | None, until: Moment | None, signature: str | None = None, now_ms: int
) -> FailedFilter:
    """Return a filter from the arguments of a user; raises InvalidInput.

    `until` None means now, so jobs that fail later are not selected.
    """
    since_ms = 0 if since is None else _moment_ms(since, now_ms, "since")
    until_ms = now_ms if until is None else _moment_ms(until, now_ms, "until")
    if since_ms > until_ms:
        raise InvalidInput(
            f"since {shown(str(since))} is after until {shown(str(until or 'now'))}.",
            hint="Swap the two times.",
            field="since",
        )
    return FailedFilter(name, since_ms, until_ms, None if signature is None else check_signature(signature))


def spacing(rate: str | None) -> float:
    """Return the seconds between two retries at a rate such as '10/s', '600/m' or '5000/h'; 0 without a rate.

    Raises InvalidInput.
    """
    if rate is None:
        return 0.0
    match = _RATE.fullmatch(rate)
    if match is None:
        raise InvalidInput(f"rate {shown(rate)} is not a rate.", hint="Write 10/s, 600/m or 5000/h.", field="rate")
    return _SECONDS[match[2]] / int(match[1])


def _moment_ms(moment: Moment, now_ms: int, field: str) -> int:
    if is_instant(moment):
        return instant_ms(moment, now_ms=now_ms, field=field)
    try:
        return max(now_ms - duration_ms(moment, field=field), 0)
    except InvalidInput as error:
        raise InvalidInput(error.message, hint="Write 2h, for 2h ago, or 2026-11-21T15:00:00Z.", field=field) from None
