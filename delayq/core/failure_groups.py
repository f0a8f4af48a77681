"""Group failed jobs by what went wrong: the job's name, the exception type, and the message without its details.

Groups are worked out while failed jobs are listed and stored nowhere. A signature is the name of a group.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from delayq.core.errors import InvalidInput
from delayq.core.failure import Failure
from delayq.core.views import JobInfo

GROUPS_KEPT: Final = 500
"""Groups that one listing keeps apart; the jobs of further ones are only counted."""
_READ: Final = 1_000
_SHOWN: Final = 300
_DETAILS: Final = re.compile(
    r"""(?<!\w)'[^'\n]*'(?!\w) | (?<!\w)"[^"\n]*"(?!\w) | `[^`\n]*`  # quoted text
    | (?<![\w-])(?=[\w-]*\d)[\w-]{16,}                               # UUIDs, tokens, long ids
    | \b0x[0-9a-fA-F]+\b
    | \b(?=[a-f]*\d)[0-9a-f]{8,}\b                                   # short hashes
    | \d+(?:[.,:/-]\d+)*                                             # numbers, dates, times, addresses
    """,
    re.VERBOSE,
)
_SIGNATURE: Final = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Failed jobs with one name and one kind of error.

    `message` is what their messages have in common: `#` stands for each number, id, hash or quoted text. `sample` is
    the job that failed last; `queues` are the queues they are in, sorted; times are epoch ms.
    """

    signature: str
    name: str
    type: str
    message: str
    count: int
    first_ms: int
    last_ms: int
    queues: tuple[str, ...]
    sample: JobInfo


@dataclass(frozen=True, slots=True)
class FailureGroups:
    """Groups, the largest first; `looked` jobs were looked at.

    `cursor` is where the next jobs begin, '' when all were looked at. `others` jobs belong to groups beyond the first
    `GROUPS_KEPT`.
    """

    groups: tuple[FailureGroup, ...]
    looked: int = 0
    cursor: str = ""
    others: int = 0


def common_message(message: str) -> str:
    """Return a message with `#` for each number, id, hash and quoted text, in one line of at most 300 characters."""
    return " ".join(_DETAILS.sub("#", message[:_READ]).split())[:_SHOWN]


def signature_of(name: str, failure: Failure | None) -> str:
    """Return 16 hex digits that are equal for equal names, exception types and common messages."""
    kind, message = (failure.type, common_message(failure.message)) if failure else ("", "")
    text = "\n".join((name, kind, message)).encode("utf-8", "backslashreplace")
    return hashlib.sha256(text).hexdigest()[:16]


def check_signature(text: str) -> str:
    """Return it. Raises `InvalidInput` for text that is not 16 lower-case hex digits."""
    if not _SIGNATURE.fullmatch(text):
        hint = "delayq failed groups lists signatures such as 3f2a91c04be7d815."
        raise InvalidInput(f"{text[:40]!r} is not a signature of failed jobs.", hint=hint)
    return text


class Grouping:
    """Failed jobs, counted into groups one after the other."""

    def __init__(self) -> None:
        self._groups: dict[str, FailureGroup] = {}
        self._others = 0

    def add(self, infos: Iterable[JobInfo]) -> None:
        """Count these in."""
        for info in infos:
            signature = signature_of(info.name, info.failure)
            known = self._groups.get(signature)
            if known is None and len(self._groups) >= GROUPS_KEPT:
                self._others += 1
            else:
                self._groups[signature] = _new(signature, info) if known is None else _grown(known, info)

    def groups(self, cursor: str, looked: int) -> FailureGroups:
        """Return what was counted: the largest group first; of equal ones the group that failed last."""
        ordered = sorted(self._groups.values(), key=lambda one: (one.count, one.last_ms), reverse=True)
        return FailureGroups(tuple(ordered), looked, cursor, self._others)


def _new(signature: str, info: JobInfo) -> FailureGroup:
    failure, at_ms = info.failure, info.failed_ms or 0
    kind, message = (failure.type, common_message(failure.message)) if failure else ("", "")
    return FailureGroup(signature, info.name, kind, message, 1, at_ms, at_ms, (info.queue,), info)


def _grown(group: FailureGroup, info: JobInfo) -> FailureGroup:
    at_ms = info.failed_ms or 0
    queues = group.queues if info.queue in group.queues else tuple(sorted((*group.queues, info.queue)))
    return replace(
        group,
        count=group.count + 1,
        first_ms=min(group.first_ms, at_ms),
        last_ms=max(group.last_ms, at_ms),
        queues=queues,
        sample=info if at_ms > group.last_ms else group.sample,
    )
