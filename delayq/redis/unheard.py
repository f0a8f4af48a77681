"""What queues have to say of a batch that no relay has carried yet. A generator like those of `verbs`.

A job's end and its note are one step, but the note waits in the outbox of its queue. Who cancels a batch asks there
after members that are gone: one that has succeeded must not count as skipped. What is told early counts once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from delayq.core import followups
from delayq.core.errors import BadEnvelope
from delayq.core.followups import Note
from delayq.redis.calls.call import Command, Scope, text
from delayq.redis.calls.follow import Owed, Told, todo_of, told_by
from delayq.redis.finding import every_shard

if TYPE_CHECKING:
    from delayq.redis.verbs import Flow, Verbs

PAGE = 200


class Unheard:
    """Of one batch. Each outbox is read on where it was left: a note's place is never before those that were there."""

    def __init__(self, verbs: Verbs, batch: str) -> None:
        self.batch = batch
        self._verbs = verbs
        self._mark = bytes(followups.encode_membership(batch))
        self._read: dict[str, str] = {}

    def of(self, queues: Iterable[str]) -> Flow[list[Told]]:
        """What these queues have to say since they were asked last."""
        told: list[Told] = []
        for queue in sorted(set(queues)):
            for scope in (yield from every_shard(self._verbs, queue)):
                told += yield from self._outbox(scope)
        return told

    def _outbox(self, scope: Scope) -> Flow[list[Told]]:
        outbox, told, full = scope.keys.of("outbox"), list[Told](), True
        while full:
            after = self._read.get(outbox)
            words = ("XRANGE", outbox, f"({after}" if after else "-", "+", "COUNT", PAGE)
            rows: list[Owed] = yield Command(words, _rows, True)
            told += (one for row in rows for one in self._told(row))
            if rows:
                self._read[outbox] = rows[-1].entry
            full = len(rows) == PAGE
        return told

    def _told(self, row: Owed) -> Iterator[Told]:
        if not any(self._mark in value for value in row.fields.values()):
            return
        try:
            todo = todo_of(row, 0)
        except BadEnvelope:
            return  # the relay says so
        for item in todo:
            if isinstance(item, Note) and item.batch == self.batch:
                yield from told_by(item)


def _rows(reply: Iterable[Any]) -> list[Owed]:
    return [Owed(text(entry), 0, _fields(fields)) for entry, fields in reply]


def _fields(fields: Any) -> dict[str, bytes]:
    pairs = fields.items() if isinstance(fields, Mapping) else zip(fields[::2], fields[1::2], strict=True)
    return {text(name): value for name, value in pairs}
