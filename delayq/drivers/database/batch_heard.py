"""What batches in a database hear of the jobs in rows that end, and how it is told. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from delayq.core import follow
from delayq.core.errors import BadEnvelope
from delayq.core.followups import End, FollowUp, Note, Word
from delayq.drivers.database.batch_taken import envelope_of


def together(todo: Iterable[FollowUp]) -> list[FollowUp]:
    """What is told of one batch, together and in order. Batches by their ids: so two seldom wait for each other."""
    notes: dict[str, Note] = {}
    others: list[FollowUp] = []
    for item in todo:
        if isinstance(item, Note):
            told = notes.setdefault(item.batch, Note(item.batch, []))
            told.members.extend(item.members)
            told.joined.extend(item.joined)
        else:
            others.append(item)
    return [*others, *(note for _, note in sorted(notes.items()))]


def words_of(row: Any, end: End) -> list[tuple[str, Word]]:
    """What a batch hears of the job in a row that ends so, and of the links behind it."""
    notes = [note for note in ends_of(row, end) if isinstance(note, Note)]
    return list(notes[0].members) if notes else []


def ends_of(row: Any, end: End) -> Sequence[FollowUp]:
    """What follows when the job in a row ends so, whatever PHP has made of it meanwhile."""
    try:
        part = follow.part_of_envelope(envelope_of(row))
    except BadEnvelope:
        return []
    return [] if part is None else follow.follow_ups(part, end, 0)
