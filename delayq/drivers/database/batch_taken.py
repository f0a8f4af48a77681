"""Parts of a batch or chain in a database that cannot run, because their ids are somebody else's."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any, NamedTuple

from delayq.core import ending, follow
from delayq.core import envelope as envelopes
from delayq.core.envelope import Envelope
from delayq.core.errors import Conflict
from delayq.core.followups import FollowUp, Link, Plan
from delayq.drivers.broker import Item
from delayq.drivers.database import payload


class Taken(NamedTuple):
    """What cannot run because its id is somebody's, and what follows that."""

    id: str
    whose: str
    todo: Sequence[FollowUp]


def taken_job(item: Item, now_ms: int, *, sibling: bool = False) -> Taken:
    """A job; `sibling`: who has its id is a member of its batch."""
    return Taken(item.id, "another job", ending.displaced(item.envelope, item.queue, now_ms, sibling=sibling))


def taken_batch(plan: Plan, now_ms: int) -> Taken:
    """A batch."""
    return Taken(plan.id, "another batch", ending.displaced_batch(plan, now_ms))


def refuse_halves(members: Sequence[Link], known: Container[str]) -> None:
    """Raises `Conflict` for a chain whose first link has another member's id: its rest would never have a turn."""
    for link in members:
        ids = [member for member, _ in follow.ids_of([link])]
        if link.id in known and any(member not in known for member in ids):
            refuse([Taken(link.id, "another member", ())])


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
