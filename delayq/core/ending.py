"""From an outcome to what follows it: the step between `outcome` and `follow`."""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from delayq.core import envelope as envelopes
from delayq.core import failure as failures
from delayq.core import follow, followups
from delayq.core.errors import BadEnvelope, Conflict
from delayq.core.failure import Failure
from delayq.core.follow import Part
from delayq.core.followups import End, FollowUp, Note, Plan, Todo
from delayq.core.outcome import DONE, Ack, GiveUp, Outcome, Release

MESSAGE: Final = 1_000
"""Characters of an error's message that jobs are told that catch it."""


class Ending(NamedTuple):
    """How a job ended, and what follows."""

    end: End
    todo: Todo


def ending(raw: bytes, job_id: str, queue: str, outcome: Outcome, now_ms: int) -> Ending | None:
    """What follows a job that ended so; None when nothing does, or when it is tried again.

    An envelope whose chain cannot be read was never made here; its job ends alone.
    """
    if outcome is DONE or isinstance(outcome, Release):
        return None
    part = _part(raw, job_id, outcome)
    if part is None:
        return None
    end, headers = _end(outcome), None
    if isinstance(outcome, GiveUp):
        headers = _told_of(part, queue, outcome.error)
    try:
        return Ending(end, follow.follow_ups(part, end, now_ms, headers))
    except BadEnvelope:  # a link far behind it, whose id its batch would have to be told
        return None


def ended(raw: bytes, end: End, failure: Failure | None, now_ms: int) -> Todo:
    """What follows a job that a script ended; `failure` tells why, if it is known. Raises `BadEnvelope`."""
    part = follow.part_of(raw)
    if part is None:
        return []
    headers = {f"{follow.FAILED_HEADER}id": part.id}
    if failure is not None:
        headers = _told_of(part, envelopes.decode(raw).queue, failures.Recorded(failure))
    return follow.follow_ups(part, end, now_ms, headers)


def displaced(raw: bytes, queue: str, now_ms: int, *, sibling: bool = False) -> Todo:
    """What follows a job that cannot be sent, because its id is another job's.

    `sibling`: that one is a member of the same batch, which hears from it by itself what became of that id.
    """
    part = follow.part_of(raw)
    said = f"was taken by another job in the queue {queue!r} when its turn came."
    todo = [] if part is None else _displaced(part, queue, said, now_ms)
    return [_without_first(item) if sibling else item for item in todo]


def _without_first(item: FollowUp) -> FollowUp:
    """A note says first what became of the job itself."""
    return msgspec.structs.replace(item, members=item.members[1:]) if isinstance(item, Note) else item


def displaced_batch(plan: Plan, now_ms: int) -> Todo:
    """As `displaced`, of a batch whose id is another batch's."""
    return _displaced(follow.part_of_batch(plan, 0), "", "was taken by another batch when its turn came.", now_ms)


def _displaced(part: Part, queue: str, said: str, now_ms: int) -> Todo:
    """To its batch it was skipped, and so were the links behind it: a failed one would be retried, and under that id
    there is somebody else. Those that catch a failure of its chain are told.
    """
    todo = follow.follow_ups(part, End.CANCELLED, now_ms)
    if part.chain is not None:
        headers = _told_of(part, queue, Conflict(f"The id {part.id!r} {said}"))
        ending = follow.round_of(part.retried)
        todo += (follow.launch(link, now_ms, headers, ending) for link in part.chain.catch)
    return todo


def _part(raw: bytes, job_id: str, outcome: Outcome) -> Part | None:
    try:
        part = follow.part_of(raw)
        if isinstance(outcome, Ack) and outcome.chain:  # its handler changed the rest of its chain, or began one
            return follow.grown(part or Part(job_id, None, None), followups.decode_chain(outcome.chain))
    except BadEnvelope:
        return None
    return part


def _told_of(part: Part, queue: str, error: BaseException) -> dict[str, str]:
    """Headers for the jobs that catch a failure: which job failed, where, and of what."""
    failure = failures.describe(error, at_ms=0, attempt=0)
    told = {"id": part.id, "queue": queue, "error": failure.type, "message": failure.message[:MESSAGE]}
    return {f"{follow.FAILED_HEADER}{name}": value for name, value in told.items()}


def _end(outcome: Outcome) -> End:
    if isinstance(outcome, GiveUp):
        return End.FAILED
    return End.CANCELLED if isinstance(outcome, Ack) and outcome.called_off else End.DONE
