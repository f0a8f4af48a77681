"""Searches for jobs: their criteria, and the check whether a job matches."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from typing import Literal, get_args

import msgspec

from delayq.core.display import shown
from delayq.core.errors import DelayqError, InvalidInput
from delayq.core.failure_groups import check_signature, signature_of
from delayq.core.names import check_queue
from delayq.core.times import duration_ms, instant_ms, is_instant
from delayq.core.views import JobInfo, JobState

Moment = str | datetime | timedelta
"""A point in time ('2026-11-21T15:00:00Z', a datetime with a time zone), or an age ('2h', a timedelta)."""

SearchedState = Literal[JobState, "retry"]


class JobSearch(msgspec.Struct, frozen=True, kw_only=True):
    """A search for jobs in one state. None = no restriction.

    * `state`: the state of the jobs. "retry" = scheduled jobs with at least one attempt.
    * `queues`: the queues to search; None = all queues.
    * `name`: a pattern for the name, such as "order.*".
    * `tag`: a tag of the jobs.
    * `since`, `until`: the earliest and the latest time of the jobs: a point in time ("2026-11-21T15:00:00Z", an aware
      datetime) or an age ("2h", a timedelta). For a failed job, this is the time of its failure. For a scheduled job,
      it is the due time. For a completed job, it is the time at which the job will be deleted. For a ready or reserved
      job, it is the time at which the job became ready. If `until` is None, jobs that fail after the start of the
      search are left out.
    * `signature`: the signature of a group of failed jobs, as `failed_groups` returns it.
    * `waiting_for_code`: True = only scheduled jobs that wait for a worker with a newer release of the application,
      because the last worker that received them did not know their name or a field of their payload.
    * `newest_first`: the order by time. True = latest first, False = earliest first, None = latest first for failed
      jobs, and earliest first for all others.
    """

    state: SearchedState = "scheduled"
    queues: Sequence[str] | None = None
    name: str | None = None
    tag: str | None = None
    since: Moment | None = None
    until: Moment | None = None
    signature: str | None = None
    waiting_for_code: bool = False
    newest_first: bool | None = None


class JobFilter(msgspec.Struct, frozen=True, kw_only=True):
    """The restrictions of a search, except for its state and its queues. None = no restriction."""

    since_ms: int | None
    until_ms: int | None
    name: str | None
    tag: str | None
    signature: str | None
    is_retry: bool
    waiting_for_code: bool

    @property
    def selects_all(self) -> bool:
        """True if every job between `since_ms` and `until_ms` matches."""
        return not (self.name or self.tag or self.signature or self.is_retry or self.waiting_for_code)

    def fits(self, job: JobInfo) -> bool:
        """Return True if a job matches. Its time and its failure are not checked."""
        tags = (job.envelope.tags if job.envelope else None) or []
        return (
            (self.name is None or fnmatchcase(job.name, self.name))
            and (self.tag is None or self.tag in tags)
            and (not self.is_retry or bool(job.attempts))
            and (not self.waiting_for_code or job.waits_for_code)
        )

    def fits_failure(self, job: JobInfo) -> bool:
        """Return True if the search names no group, or if the failure of the job belongs to this group."""
        return self.signature is None or signature_of(job) == self.signature


def state_of(search: JobSearch) -> JobState:
    """Return the state whose jobs are read."""
    return "scheduled" if search.state == "retry" else search.state


def filter_of(search: JobSearch, now_ms: int) -> JobFilter:
    """Check a search and return its restrictions. Ages count from `now_ms`. Raises InvalidInput."""
    _check(search)
    since_ms = None if search.since is None else _moment_ms(search.since, now_ms, "since")
    until_ms = now_ms if search.state == "failed" else None
    if search.until is not None:
        until_ms = _moment_ms(search.until, now_ms, "until")
    if since_ms is not None and until_ms is not None and since_ms > until_ms:
        raise InvalidInput(
            f"since {shown(str(search.since))} is after until {shown(str(search.until or 'now'))}.",
            hint="Swap the two times." if search.until is not None else "Use a time in the past.",
            field="since",
        )
    return JobFilter(
        since_ms=since_ms,
        until_ms=until_ms,
        name=search.name,
        tag=search.tag,
        signature=search.signature,
        is_retry=search.state == "retry",
        waiting_for_code=search.waiting_for_code,
    )


def _check(search: JobSearch) -> None:
    if search.state not in (*get_args(JobState), "retry"):
        raise InvalidInput(
            f"state is {shown(search.state)}.",
            hint=f"Use {', '.join(get_args(JobState))} or retry.",
            field="state",
        )
    for queue in search.queues or ():
        check_queue(queue)
    if search.signature is not None:
        check_signature(search.signature)
        _check_state(search, "signature", ("failed",))
    if search.waiting_for_code:
        _check_state(search, "waiting_for_code", ("scheduled", "retry"))


def _check_state(search: JobSearch, field: str, states: tuple[str, ...]) -> None:
    if search.state not in states:
        raise InvalidInput(
            f"{field} selects {states[0]} jobs, but state is {shown(search.state)}.",
            hint=f"Select the state {states[0]}, or leave out {field}=.",
            field=field,
        )


def _moment_ms(moment: Moment, now_ms: int, field: str) -> int:
    if is_instant(moment):
        return instant_ms(moment, now_ms=now_ms, field=field)
    try:
        return max(now_ms - duration_ms(moment, field=field), 0)
    except InvalidInput as error:
        raise InvalidInput(error.message, hint="Write 2h, for 2h ago, or 2026-11-21T15:00:00Z.", field=field) from None


class FoundJobs(msgspec.Struct, frozen=True):
    """One page of the jobs that a search found.

    * `jobs`: the jobs, in the order of the search. Failed jobs have their failures.
    * `cursor`: the argument `cursor` of `search` for the next page, or "" if this is the last page.
    * `looked`: the number of jobs that were checked.
    * `errors`: the error by queue, for each queue that could not be read. With an error, the search is incomplete.
    """

    jobs: list[JobInfo]
    cursor: str
    looked: int
    errors: dict[str, DelayqError]
