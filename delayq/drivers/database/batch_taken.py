"""Parts of a batch or chain in a database that cannot run, because their ids are somebody else's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from delayq.core import ending
from delayq.core import envelope as envelopes
from delayq.core.envelope import Envelope
from delayq.core.errors import Conflict
from delayq.core.followups import FollowUp, Plan
from delayq.drivers.broker import Item
from delayq.drivers.database import payload


class Taken(NamedTuple):
    """What cannot run because its id is somebody's, and what follows that."""

    id: str
    whose: str
    todo: Sequence[FollowUp]


def taken_job(item: Item, now_ms: int) -> Taken:
    """A job."""
    return Taken(item.id, "another job", ending.displaced(item.envelope, item.queue, now_ms))


def taken_batch(plan: Plan, now_ms: int) -> Taken:
    """A batch."""
    return Taken(plan.id, "another batch", ending.displaced_batch(plan, now_ms))


def refuse(taken: Sequence[Taken]) -> None:
    """Raises `Conflict` for the first of them; the transaction takes back what was sent."""
    for one in taken:
        raise Conflict(
            f"The id {one.id!r} is taken by {one.whose}, so no part of this batch can have it; nothing was sent.",
            hint="Give parts of a batch ids of their own, or none.",
        )


def envelope_of(row: Any) -> Envelope:
    """What the job in a row is, whatever PHP has made of it. Raises `BadEnvelope`."""
    return envelopes.decode(payload.read_any(row.payload, queue=row.queue, attempts=0).envelope)
