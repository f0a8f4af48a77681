"""Which failed jobs are meant: by name and by the time they failed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from typing import TypeAlias, TypedDict

from delayq.core.durations import duration_ms
from delayq.core.errors import InvalidInput
from delayq.core.failure_groups import check_signature, signature_of
from delayq.core.views import JobInfo
from delayq.core.when import instant_ms

Moment: TypeAlias = str | datetime | timedelta
"""A time ('2026-11-21T15:00:00Z', an aware datetime), or how long ago ('2h', a timedelta)."""


class FailedOptions(TypedDict, total=False):
    """Which failed jobs: those whose name fits a pattern ('order.*'), that failed no earlier than `since` and no
    later than `until`, and that belong to the group `signature` of `failed_groups`. What is left out narrows nothing.
    """

    name: str | None
    since: Moment | None
    until: Moment | None
    signature: str | None


@dataclass(frozen=True, slots=True)
class FailedChoice:
    """The same with its times worked out, epoch ms."""

    name: str | None
    since_ms: int
    until_ms: int
    signature: str | None = None

    @property
    def cursor(self) -> str:
        """Where a list of failed jobs begins that has none of those before. A space is below every id."""
        return f"{self.since_ms}  " if self.since_ms else ""

    def has(self, info: JobInfo) -> bool:
        """Whether a failed job is meant, by its name and, if there is a signature, by its failure."""
        if self.name is not None and not fnmatchcase(info.name, self.name):
            return False
        return self.signature is None or self.signature == signature_of(info.name, info.failure)

    def over(self, info: JobInfo) -> bool:
        """Whether this one, and with it all that failed later, lies behind the end."""
        return (info.failed_ms or 0) > self.until_ms


def choose(options: FailedOptions, now_ms: int, newest_ms: int) -> FailedChoice:
    """Work the times out. Without an `until` it ends with the newest one: what fails from now on is not meant.

    Raises `InvalidInput` for what is no time or no signature, and for an end before its beginning.
    """
    since, until = options.get("since"), options.get("until")
    since_ms = 0 if since is None else moment_ms(since, now_ms)
    until_ms = newest_ms if until is None else moment_ms(until, now_ms)
    if since is not None and until is not None and since_ms > until_ms:
        raise InvalidInput(f"The end {until} lies before the beginning {since}.", hint="Exchange since and until.")
    signature = options.get("signature")
    return FailedChoice(
        options.get("name"), since_ms, until_ms, None if signature is None else check_signature(signature)
    )


def moment_ms(moment: Moment, now_ms: int) -> int:
    """Epoch ms of a time, or of so long ago."""
    if isinstance(moment, timedelta) or (isinstance(moment, str) and "-" not in moment):
        return max(0, now_ms - duration_ms(moment))
    return instant_ms(moment, now_ms=now_ms)
