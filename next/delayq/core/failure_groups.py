"""Groups of failed jobs by what went wrong: the name of the job, the type of the error, and what its messages share.

Groups are worked out while failed jobs are read, and stored nowhere. A signature is the name of a group.
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
    r"\b[0-9a-f]{8,}\b",  # a short hash, or a word such as "defaced"
    r"\d+(?:[-.,:/]\d+)*",  # a number, a date, an address
)
_CANDIDATE: Final = re.compile("|".join(_CANDIDATES))
"""Possible details: every quotation is one, and any other match that has a digit."""
_SIGNATURE: Final = re.compile(r"[0-9a-f]{16}")


class FailedGroup(msgspec.Struct, frozen=True):
    """Failed jobs of one name with one kind of error.

    `message` has `#` for each detail, such as a number or an id. `sample_id` is the job that failed last, in
    `sample_queue`; `queues` are those with a job of the group.
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
    """Groups, the largest first. `looked`: how many failed jobs were read; `is_complete`: these were all."""

    groups: list[FailedGroup]
    looked: int
    is_complete: bool


def common_message(message: str) -> str:
    """Return a message with `#` for each detail, on one line of at most 300 characters."""
    return " ".join(_CANDIDATE.sub(_without_detail, message[:MAX_READ]).split())[:MAX_MESSAGE]


def signature_of(job: JobInfo) -> str:
    """Return 16 hex digits, the same for jobs of one group."""
    type, message = _kind(job.failure)
    text = "\n".join((job.name, type, message)).encode("utf-8", "backslashreplace")
    return hashlib.sha256(text).hexdigest()[:16]


def check_signature(text: str) -> str:
    """Return a signature; raises InvalidInput for a text that is none."""
    if not _SIGNATURE.fullmatch(text):
        raise InvalidInput(
            f"signature {shown(text)} is no signature.", hint="`delayq failed groups` lists them.", field="signature"
        )
    return text


class Grouping:
    """Failed jobs, counted into groups one after the other. No job is kept."""

    def __init__(self) -> None:
        self._groups: dict[str, FailedGroup] = {}

    def add(self, job: JobInfo) -> None:
        """Count one job."""
        signature = signature_of(job)
        known = self._groups.get(signature)
        self._groups[signature] = _new(signature, job) if known is None else _grown(known, job)

    def groups(self) -> list[FailedGroup]:
        """Return the groups: the largest first, of equal ones the one that failed last."""
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
