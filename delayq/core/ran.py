"""When an attempt fell due, entered the stream and began; kept with what ended, for its timeline. Pure.

    failed      {"type": …, "message": …, "ran": {…}}       a member of the record of its failure
    completed   {"ran": {…}, "kept_ms": …, "before": {…}}   with the record of the failures before it, if there were any

Both lie in `errors`. Nothing is kept of a job without a retention: most of them, and what matters there is speed.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec

from delayq.core.failure import Failure, Ran, flatten
from delayq.core.outcome import Ack, Outcome, Release


class Ended(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a job that is kept as completed came to its end; it is kept for `kept_ms`."""

    ran: Ran
    kept_ms: int = 0
    before: Failure | None = None

    @property
    def failures(self) -> list[Failure]:
        """The attempts that failed before, oldest first."""
        return flatten([self.before]) if self.before else []


_decode = msgspec.json.Decoder(Ended).decode
_encode = msgspec.json.Encoder().encode


def entered_ms(entry: str) -> int | None:
    """When an entry came into its stream, epoch ms: its id says so. None for the leases of backends without one."""
    head, _, tail = entry.partition("-")
    return int(head) if entry.isascii() and head.isdigit() and tail.isdigit() else None


def ran(due_ms: int, entry: str, started_ms: int | None, recoveries: int = 0) -> Ran:
    """Of a delivery: its entry's id tells when it was appended. It did not start before that, by whatever clock."""
    promoted_ms = entered_ms(entry)
    if started_ms is not None and promoted_ms is not None:
        started_ms = max(started_ms, promoted_ms)
    return Ran(due_ms, promoted_ms, started_ms, recoveries)


def dated(outcome: Outcome, when: Ran) -> Outcome:
    """The outcome with it, where anything is kept of the attempt: a failure, or the job itself."""
    if isinstance(outcome, Ack):
        return replace(outcome, ran=when) if outcome.retention_ms else outcome
    return outcome if isinstance(outcome, Release) and outcome.error is None else replace(outcome, ran=when)


def encode(when: Ran | None, kept_ms: int) -> bytes:
    """What `ack` keeps of a completed job; b'' for nothing."""
    return b"" if when is None else _encode(Ended(when, kept_ms))


def decode(raw: bytes) -> Ended | None:
    """The record of a completed job; None when nothing was kept, or somebody else wrote it."""
    try:
        ended = _decode(raw) if raw else None
        if ended is None or ended.before is None:
            return ended
        before = msgspec.structs.replace(ended.before, history=flatten(ended.before.history))
        return msgspec.structs.replace(ended, before=before)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
