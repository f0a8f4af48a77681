"""Groups of failed jobs with the same cause: the same job name, error type, and error message apart from details.

Groups are computed while failed jobs are read, and are not stored. Each group is identified by its signature.
"""

import hashlib
import re
from typing import Final

import msgspec

from delayq.core.display import shown
from delayq.core.errors import InvalidInput
from delayq.core.failure import Failure
from delayq.core.views import JobInfo

MAX_READ: Final = 1_000
MAX_MESSAGE: Final = 300

_QUOTES: Final = "'\"`"
_CANDIDATES: Final = (
    r"(?<!\w)(['\"])(?:(?!\1).)*\1(?!\w)",  # a quotation, not the apostrophes of "the shop's order isn't there"
    r"`[^`\n]*`",
    r"(?<![\w-])[\w-]{16,}",  # a UUID, a token, or a long word
    r"\b0x[0-9a-fA-F]+\b",
    r"\b[0-9a-f]{8,}\b",  # a short hash
    r"\d+(?:[-.,:/]\d+)*",  # a number, a date, an address
)
_CANDIDATE: Final = re.compile("|".join(_CANDIDATES))
"""Possible details of a message. A quotation is always a detail; any other match only if it contains a digit."""
_SIGNATURE: Final = re.compile(r"[0-9a-f]{16}")


class FailedGroup(msgspec.Struct, frozen=True):
    """Failed jobs with the same name and the same kind of error.

    * `signature`: 16 hex digits that identify the group, also in later calls.
    * `name`, `type`: the name of the jobs and the type of their error.
    * `message`: the common error message, with `#` in place of each detail, such as a number or an id.
    * `count`: the number of jobs.
    * `first_ms`, `last_ms`: the time of the first and last failure, in epoch ms.
    * `queues`: the queues of the jobs.
    * `sample_id`, `sample_queue`: the id and queue of the job that failed last.
    """

    signature: str
    name: str
    type: str
    message: str
    count: int
    first_ms: int
    last_ms: int
    queues: list[str]
    sample_id: str
    sample_queue: str


class FailedGroups(msgspec.Struct, frozen=True):
    """Groups of failed jobs, the largest first.

    `looked` is the number of failed jobs that were read. `is_complete` is True if all matching failed jobs were read,
    and False if the limit of the call was reached first.
    """

    groups: list[FailedGroup]
    looked: int
    is_complete: bool


def common_message(message: str) -> str:
    """Return a message with `#` in place of each detail, on one line of at most 300 characters."""
    return " ".join(_CANDIDATE.sub(_without_detail, message[:MAX_READ]).split())[:MAX_MESSAGE]


def signature_of(job: JobInfo) -> str:
    """Return the signature of the group that a failed job belongs to: 16 hex digits."""
    type, message = _kind(job.failure)
    text = "\n".join((job.name, type, message)).encode("utf-8", "backslashreplace")
    return hashlib.sha256(text).hexdigest()[:16]


def check_signature(text: str) -> str:
    """Return `text` if it has the form of a signature; raises InvalidInput otherwise."""
    if not _SIGNATURE.fullmatch(text):
        raise InvalidInput(
            f"signature {shown(text)} is not a signature.",
            hint="`delayq failed groups` lists all signatures.",
            field="signature",
        )
    return text


class Grouping:
    """Counts failed jobs by group, one job after the other, without keeping the jobs."""

    def __init__(self) -> None:
        self._groups: dict[str, FailedGroup] = {}

    def add(self, job: JobInfo) -> None:
        """Count one job in its group."""
        signature = signature_of(job)
        known = self._groups.get(signature)
        self._groups[signature] = _new(signature, job) if known is None else _grown(known, job)

    def groups(self) -> list[FailedGroup]:
        """Return the groups, the largest first. Groups of equal size are sorted by their latest failure."""
        return sorted(self._groups.values(), key=lambda group: (-group.count, -group.last_ms))


def _without_detail(found: re.Match[str]) -> str:
    text = found[0]
    return "#" if text[0] in _QUOTES or any(letter.isdecimal() for letter in text) else text


def _new(signature: str, job: JobInfo) -> FailedGroup:
    type, message = _kind(job.failure)
    at_ms = job.failed_ms or 0
    return FailedGroup(signature, job.name, type, message, 1, at_ms, at_ms, [job.queue], job.id, job.queue)


def _grown(group: FailedGroup, job: JobInfo) -> FailedGroup:
    at_ms = job.failed_ms or 0
    is_last = at_ms >= group.last_ms
    return msgspec.structs.replace(
        group,
        count=group.count + 1,
        first_ms=min(group.first_ms, at_ms),
        last_ms=max(group.last_ms, at_ms),
        queues=sorted({*group.queues, job.queue}),
        sample_id=job.id if is_last else group.sample_id,
        sample_queue=job.queue if is_last else group.sample_queue,
    )


def _kind(failure: Failure | None) -> tuple[str, str]:
    return (failure.type, common_message(failure.message)) if failure else ("", "")
