"""Batches as rows: Laravel's `job_batches` for the batch, a table of our own for its members.

What only delayq knows of a batch stands in `options`, as the text `delayq` of a serialized PHP array, which is what
Laravel looks for there.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, bindparam, delete, func, insert, select, update

from delayq.core.batches import BatchInfo
from delayq.core.followups import Plan, Word
from delayq.drivers.database.tables import Tables

PAGE: Final = 500
OURS: Final = '%s:6:"delayq";%'
_OPTIONS: Final = re.compile(rb'a:2:\{s:13:"allowFailures";b:[01];s:6:"delayq";s:(\d+):"')


class Kept(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is known of a batch besides Laravel's columns.

    `rounds`: how often it was taken up again. `caught`: its first failure was told; `then`, `onward`: what goes on
    because of its end was sent, which is once and for all.
    """

    plan: Plan
    rounds: int = 0
    caught: bool = False
    then: bool = False
    onward: bool = False


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Kept).decode


@dataclass(frozen=True, slots=True)
class BatchRow:
    """A batch as it stands. Times are epoch seconds, as Laravel's are."""

    id: str
    total: int
    pending: int
    failed: tuple[str, ...]
    created_s: int
    cancelled_s: int | None
    finished_s: int | None
    kept: Kept

    @property
    def plan(self) -> Plan:
        """What it was begun with, without its members."""
        return self.kept.plan

    @property
    def over(self) -> bool:
        """Whether nothing of it is to start any more."""
        return self.cancelled_s is not None


class BatchRows:
    """Reads and writes them in somebody's transaction."""

    def __init__(self, tables: Tables) -> None:
        self._batches = tables.batches
        self._members = tables.members
        rows = tables.members.c
        own = (rows.batch == bindparam("of_batch"), rows.member == bindparam("of_member"))
        self._mark = update(tables.members).where(*own).values(word=bindparam("new_word"))

    def find(self, connection: Connection, batch: str, *, locked: bool = False) -> BatchRow | None:
        """A batch of delayq's; `locked`: against everybody else until this transaction ends."""
        asked = select(self._batches).where(self._batches.c.id == batch)
        row = connection.execute(asked.with_for_update() if locked else asked).first()
        return None if row is None else _read(row)

    def begin(self, connection: Connection, plan: Plan, members: Sequence[tuple[str, str]], now_s: int) -> bool:
        """A new batch with its members; False when there is one of that id already."""
        kept = Kept(msgspec.structs.replace(plan, members=[]))
        row = BatchRow(plan.id, len(members), len(members), (), now_s, None, None, kept)
        if connection.execute(select(self._batches.c.id).where(self._batches.c.id == plan.id)).first() is not None:
            return False
        connection.execute(insert(self._batches).values(id=plan.id, name=plan.name[:255], **_columns(row)))
        self.add(connection, plan.id, members)
        return True

    def write(self, connection: Connection, row: BatchRow) -> None:
        """As it stands now."""
        connection.execute(update(self._batches).where(self._batches.c.id == row.id).values(**_columns(row)))

    def add(self, connection: Connection, batch: str, members: Sequence[tuple[str, str]]) -> None:
        """Members, (id, queue), that it has not."""
        rows = [{"batch": batch, "member": m, "queue": q, "word": Word.PENDING.value} for m, q in members]
        for start in range(0, len(rows), PAGE):
            connection.execute(insert(self._members), rows[start : start + PAGE])

    def words(self, connection: Connection, batch: str, members: Iterable[str]) -> dict[str, Word]:
        """What became of these, as far as they are members."""
        asked, found = list(dict.fromkeys(members)), dict[str, Word]()
        rows = self._members.c
        for start in range(0, len(asked), PAGE):
            some = select(rows.member, rows.word).where(
                rows.batch == batch, rows.member.in_(asked[start : start + PAGE])
            )
            found |= {row.member: Word(row.word) for row in connection.execute(some)}
        return found

    def holds_back(self, connection: Connection, row: BatchRow, member: str) -> bool:
        """Whether a member may not start: the batch was cancelled, or it was skipped before a retry lifted that."""
        return row.over or self.words(connection, row.id, [member]).get(member) is Word.SKIPPED

    def mark(self, connection: Connection, batch: str, words: Mapping[str, Word]) -> None:
        """Write down what became of members."""
        values = [{"of_batch": batch, "of_member": m, "new_word": w.value} for m, w in sorted(words.items())]
        if values:
            connection.execute(self._mark, values)

    def counts(self, connection: Connection, batch: str) -> Counter[Word]:
        """How many members have which word."""
        rows = self._members.c
        asked = select(rows.word, func.count()).where(rows.batch == batch).group_by(rows.word)
        return Counter({Word(word): number for word, number in connection.execute(asked).all()})

    def members(
        self, connection: Connection, batch: str, word: Word, limit: int | None = None
    ) -> list[tuple[str, str]]:
        """Members with that word, each with its queue ('' = a batch), by their ids."""
        rows = self._members.c
        asked = (
            select(rows.member, rows.queue).where(rows.batch == batch, rows.word == word.value).order_by(rows.member)
        )
        found = connection.execute(asked if limit is None else asked.limit(limit))
        return [(row.member, row.queue) for row in found]

    def newest(self, connection: Connection, limit: int) -> list[BatchRow]:
        """Those of delayq that began last."""
        rows = self._batches.c
        asked = select(self._batches).where(rows.options.like(OURS)).order_by(rows.created_at.desc(), rows.id.desc())
        return [row for row in map(_read, connection.execute(asked.limit(limit))) if row is not None]

    def forget(self, connection: Connection, before_s: int, limit: int) -> None:
        """Delete some of delayq's that finished earlier, with their members."""
        rows = self._batches.c
        old = select(rows.id).where(rows.finished_at < before_s, rows.options.like(OURS)).limit(limit)
        ids = connection.execute(old.with_for_update(skip_locked=True)).scalars().all()
        if ids:
            connection.execute(delete(self._members).where(self._members.c.batch.in_(ids)))
            connection.execute(delete(self._batches).where(rows.id.in_(ids)))

    def told(self, connection: Connection, row: BatchRow) -> BatchInfo:
        """What people are told of it."""
        skipped = self.counts(connection, row.id)[Word.SKIPPED]
        return BatchInfo(
            id=row.id,
            name=row.plan.name,
            pending=row.pending,
            done=row.total - row.pending - len(row.failed) - skipped,
            failed=len(row.failed),
            skipped=skipped,
            created_ms=row.created_s * 1000,
            cancelled_ms=None if row.cancelled_s is None else row.cancelled_s * 1000,
            finished_ms=None if row.finished_s is None else row.finished_s * 1000,
            allow_failures=row.plan.allow_failures,
            owner=row.plan.owner,
        )


def _columns(row: BatchRow) -> dict[str, Any]:
    own = _encode(row.kept)
    allow = int(row.plan.allow_failures)
    head = f'a:2:{{s:13:"allowFailures";b:{allow};s:6:"delayq";s:{len(own)}:"'
    return {
        "total_jobs": row.total,
        "pending_jobs": row.pending,
        "failed_jobs": len(row.failed),
        "failed_job_ids": msgspec.json.encode(list(row.failed)).decode(),
        "options": f'{head}{own.decode()}";}}',
        "cancelled_at": row.cancelled_s,
        "created_at": row.created_s,
        "finished_at": row.finished_s,
    }


def _read(row: Any) -> BatchRow | None:
    """A row of ours; None for Laravel's own, and for one that cannot be read."""
    raw = (row.options or "").encode("utf-8", "surrogateescape")
    match = _OPTIONS.match(raw)
    if match is None:
        return None
    try:
        kept = _decode(raw[match.end() : match.end() + int(match[1])])
        failed = tuple(msgspec.json.decode(row.failed_job_ids, type=list[str]))
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    pending = int(row.pending_jobs)
    return BatchRow(
        row.id, int(row.total_jobs), pending, failed, row.created_at, row.cancelled_at, row.finished_at, kept
    )
