"""What happens in a batch, in the transaction in which it happens: the one that settles a member, opens it, cancels it.

So nothing is owed to anybody and nothing is carried: what is due is written with what makes it due, once, or not at
all. Its row is locked first, so those who settle members of one batch do so one after the other. The rules are those of
batches on Redis (scripts/lua/batch_note.lua).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Final, NamedTuple

import msgspec
from sqlalchemy import Connection, delete, select

from delayq.core import envelope as envelopes
from delayq.core import follow
from delayq.core.errors import BadEnvelope, Conflict
from delayq.core.follow import Part
from delayq.core.followups import Add, End, FollowUp, Link, Note, Open, Plan, Send, Word
from delayq.core.names import new_id
from delayq.core.own_ids import BATCH_HEADER, are_siblings, is_the_same
from delayq.core.states import Answer
from delayq.core.views import JobRef
from delayq.drivers.broker import Item
from delayq.drivers.database.batch_changes import Changes
from delayq.drivers.database.batch_heard import words_of
from delayq.drivers.database.batch_rows import PAGE, BatchRow, BatchRows
from delayq.drivers.database.batch_taken import (
    Taken,
    envelope_of,
    refuse,
    refuse_halves,
    taken_batch,
    taken_job,
)
from delayq.drivers.database.tables import Tables
from delayq.drivers.serving.acts import item_of_send

KEEP_S: Final = 7 * 86_400
FORGOTTEN_AT_ONCE: Final = 20
Words = Iterable[tuple[str, Word]]
Place = Callable[[Connection, Sequence[Item]], list[JobRef]]

log = logging.getLogger("delayq.database")


class Batching:
    """Of one connection's tables. `place` puts jobs into them in the same transaction."""

    def __init__(self, tables: Tables, place: Place) -> None:
        self.rows = BatchRows(tables)
        self._jobs = tables.jobs
        self._place = place

    # -- verbs -------------------------------------------------------------------------------------------------------

    def do(self, connection: Connection, todo: Iterable[FollowUp], now_ms: int) -> None:
        """Everything that follows an end."""
        for item in todo:
            if isinstance(item, Send):
                self.send(connection, [item_of_send(item, now_ms)], now_ms)
            elif isinstance(item, Open):
                self._displace(connection, self._begin(connection, item.plan, now_ms), now_ms)
            elif isinstance(item, Add):
                self.add(connection, item.batch, item.members, now_ms)
            else:
                self.note(connection, item.batch, item.members, now_ms, joined=item.joined)

    def send(self, connection: Connection, items: Sequence[Item], now_ms: int) -> None:
        """Jobs whose turn has come. Those whose ids are another job's do not run; their batch and chain hear of it."""
        for item, ref in zip(items, self._place(connection, items), strict=True):
            if ref.outcome is not Answer.CREATED:
                self._displace(connection, self._passed_by(connection, item, now_ms), now_ms)

    def open(self, connection: Connection, plan: Plan, now_ms: int) -> None:
        """Begin a batch, and send its members. One that was dispatched under that id is left as it is.

        Raises `Conflict` when its id, or one of a member's, is somebody else's.
        """
        self.rows.forget(connection, now_ms // 1000 - KEEP_S, FORGOTTEN_AT_ONCE)
        row = self.rows.find(connection, plan.id)
        if row is not None and row.plan.origin == plan.origin:
            return
        refuse(self._open(connection, plan, now_ms))

    def add(self, connection: Connection, batch: str, members: Sequence[Link], now_ms: int) -> bool:
        """Let a batch have more members; False for one that is not there.

        Raises `Conflict` for one that has finished or was cancelled, and when a member's id is taken.
        """
        row = self.rows.find(connection, batch, locked=True)
        if row is None:
            return False
        if row.finished_s is not None or row.over:
            said = "has finished" if row.finished_s is not None else "was cancelled"
            raise Conflict(f"The batch {batch!r} {said}, so it takes no more jobs.", hint="Dispatch another batch.")
        known = self._more(connection, row, follow.ids_of(members))
        refuse_halves(members, known)
        refuse(self._send(connection, [link for link in members if link.id not in known], now_ms))
        return True

    def join(self, connection: Connection, notes: Iterable[Note]) -> None:
        """Links that members put behind themselves are members, however their batch stands: before they are sent."""
        for note in sorted(notes, key=attrgetter("batch")):
            row = self.rows.find(connection, note.batch, locked=True)
            if row is not None:
                self._more(connection, row, note.joined)

    def note(
        self,
        connection: Connection,
        batch: str,
        words: Words,
        now_ms: int,
        *,
        cancel: bool = False,
        joined: Sequence[tuple[str, str]] = (),
    ) -> BatchRow | None:
        """Write down what became of members, and do what is due because of it; None for a batch that is gone.

        Those who have `joined` one that was cancelled are called off.
        """
        row = self.rows.find(connection, batch, locked=True)
        if row is None:
            return None
        words, now_s = list(words), now_ms // 1000
        changes = Changes(row, self.rows.words(connection, batch, (member for member, _ in words)))
        for member, word in words:
            changes.mark(member, word)
        self.rows.mark(connection, batch, changes.new)
        row, calls_off = changes.standing(now_s, cancel=cancel)
        over = row.pending == 0 and (row.finished_s is None or bool(changes.new))
        well = over and not row.failed and not self.rows.counts(connection, batch)[Word.SKIPPED]
        row, due = changes.due(row, over=over, well=well, now_s=now_s)
        self.rows.write(connection, row)  # before anything is done, because that may note this batch again
        for name in due:
            self._tell(connection, row, name, now_ms)
        if (calls_off or (joined and row.over)) and row.pending:
            self._call_off(connection, batch, now_ms)
        return row

    def tried_again(self, connection: Connection, raw: bytes, now_ms: int) -> None:
        """A member waits for its next try, which it has not if its batch was cancelled while it ran."""
        try:
            batch = follow.batch_id(envelopes.decode(raw))
        except BadEnvelope:
            return
        row = self.rows.find(connection, batch, locked=True) if batch is not None else None
        if row is not None and row.over:
            self.note(connection, row.id, (), now_ms, cancel=True)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _more(self, connection: Connection, row: BatchRow, members: Sequence[tuple[str, str]]) -> set[str]:
        """Let a batch, whose row is locked, have these members; those that it knew already."""
        counted = dict(members)
        known = self.rows.words(connection, row.id, counted)
        fresh = [(member, queue) for member, queue in counted.items() if member not in known]
        self.rows.add(connection, row.id, fresh)
        more = len(fresh)
        self.rows.write(connection, replace(row, total=row.total + more, pending=row.pending + more))
        return set(known)

    def _open(self, connection: Connection, plan: Plan, now_ms: int) -> list[Taken]:
        """What could not be sent of it, or itself."""
        if not self.rows.begin(connection, plan, list(dict(follow.ids_of(plan.members)).items()), now_ms // 1000):
            return [taken_batch(plan, now_ms)]
        before = [follow.launch(link, now_ms) for link in plan.callbacks.before]
        self.send(connection, [item_of_send(item, now_ms) for item in before if isinstance(item, Send)], now_ms)
        taken = self._send(connection, plan.members, now_ms)
        self.note(connection, plan.id, (), now_ms)
        return taken

    def _begin(self, connection: Connection, plan: Plan, now_ms: int) -> list[Taken]:
        """Open a batch whose turn has come, unless the one it is a member of was cancelled, or it was skipped there."""
        outer = self.rows.find(connection, plan.batch, locked=True) if plan.batch is not None else None
        if outer is None or not self.rows.holds_back(connection, outer, plan.id):
            return self._open(connection, plan, now_ms)
        part = Part(plan.id, plan.chain, plan.batch)
        self.do(connection, follow.follow_ups(part, End.CANCELLED, now_ms), now_ms)
        return []

    def _send(self, connection: Connection, members: Sequence[Link], now_ms: int) -> list[Taken]:
        """The heads of all members; those whose ids were taken. Batches in the batch are opened."""
        items: list[Item] = []
        taken: list[Taken] = []
        for member in members:
            item = follow.launch(member, now_ms)
            if isinstance(item, Send):
                items.append(item_of_send(item, now_ms))
            elif isinstance(item, Open):
                taken += self._begin(connection, item.plan, now_ms)
        refs = [
            ref for start in range(0, len(items), PAGE) for ref in self._place(connection, items[start : start + PAGE])
        ]
        kept = (item for item, ref in zip(items, refs, strict=True) if ref.outcome is not Answer.CREATED)
        return [*taken, *(taken_job(item, now_ms) for item in kept)]

    def _passed_by(self, connection: Connection, item: Item, now_ms: int) -> list[Taken]:
        """A job that was not sent, unless the one that has its id is this very one, or has ended since."""
        rows = self._jobs.c
        row = connection.execute(select(self._jobs).where(rows.queue == item.queue, rows.delayq_id == item.id)).first()
        try:
            there = None if row is None else envelope_of(row)
        except BadEnvelope:
            return [taken_job(item, now_ms)]
        if there is None or is_the_same(item.envelope, there):
            return []
        return [taken_job(item, now_ms, sibling=are_siblings(item.envelope, there))]

    def _displace(self, connection: Connection, taken: Iterable[Taken], now_ms: int) -> None:
        for one in taken:
            log.warning("the id %s was %s's when its turn came; it does not run", one.id, one.whose)
            self.do(connection, one.todo, now_ms)

    def _tell(self, connection: Connection, row: BatchRow, name: str, now_ms: int) -> None:
        """Send what a batch has to say, or let those hear of it that it is a part of."""
        plan, told = row.plan, self._numbers(connection, row)
        part = Part(plan.id, plan.chain, plan.batch)
        if name == "resumed":
            self.do(connection, follow.taken_up(part), now_ms)
        elif name in ("onward", "stopped"):
            end = End.DONE if name == "onward" else End.FAILED if row.failed else End.CANCELLED
            self.do(connection, follow.follow_ups(part, end, now_ms, told), now_ms)
        else:
            links: list[Link] = getattr(plan.callbacks, "finally_" if name == "finally" else name)
            ends_in = f".{new_id()}" if name == "progress" or row.kept.rounds else ""
            self.send(connection, [_callback(link, told, ends_in, now_ms) for link in links], now_ms)

    def _numbers(self, connection: Connection, row: BatchRow) -> dict[str, str]:
        """Headers of what a batch sends: how it stands."""
        info = self.rows.told(connection, row)
        numbers = {"done": info.done, "failed": info.failed, "skipped": info.skipped, "total": info.total}
        return {BATCH_HEADER: row.id, **{f"delayq-batch-{name}": str(value) for name, value in numbers.items()}}

    def _call_off(self, connection: Connection, batch: str, now_ms: int) -> None:
        """Delete the members that have not started; what runs goes on, and each tells by itself how it ended.

        A member that is nowhere is skipped too: what comes behind one that runs will not start.
        """
        members = self.rows.members(connection, batch, Word.PENDING)
        there: set[str] = set()
        words: list[tuple[str, Word]] = []
        for queue in sorted({queue for _, queue in members if queue}):
            ids = [member for member, of in members if of == queue]
            for start in range(0, len(ids), PAGE):
                some = self._taken_out(connection, queue, ids[start : start + PAGE])
                there |= some.left
                words += some.words
        words += [(member, Word.SKIPPED) for member, queue in members if queue and member not in there]
        self.note(connection, batch, words, now_ms)
        for member, queue in members:
            if queue or member in there:
                continue
            if self.note(connection, member, (), now_ms, cancel=True) is None:
                self.note(connection, batch, [(member, Word.SKIPPED)], now_ms)

    def _taken_out(self, connection: Connection, queue: str, ids: Sequence[str]) -> _Out:
        """Delete what waits of these. What somebody is just reserving is left to the look before its start."""
        rows = self._jobs.c
        mine = (rows.queue == queue, rows.delayq_id.in_(ids))
        every = connection.execute(select(self._jobs).where(*mine)).all()
        waiting = select(rows.id).where(*mine, rows.reserved_at.is_(None)).order_by(rows.id)
        numbers = set(connection.execute(waiting.with_for_update(skip_locked=True)).scalars())
        if numbers:
            connection.execute(delete(self._jobs).where(rows.id.in_(sorted(numbers))))
        out = _Out(set(), [])
        for row in every:
            if row.id in numbers:
                out.words.extend(words_of(row, End.CANCELLED))
            else:
                out.left.add(row.delayq_id)
        return out


class _Out(NamedTuple):
    """Members that are left where they were, and what became of the others."""

    left: set[str]
    words: list[tuple[str, Word]]


def _callback(link: Link, told: dict[str, str], ending: str, now_ms: int) -> Item:
    """A job that a batch sends; `ending` gives one that is sent more than once an id of its own."""
    send = follow.launch(link, now_ms, told)
    assert isinstance(send, Send)  # a callback is a job: the builder takes nothing else
    if ending:
        own_id = send.id + ending
        raw = msgspec.Raw(envelopes.rewrite(bytes(send.envelope), id=own_id))
        send = msgspec.structs.replace(send, id=own_id, envelope=raw)
    return item_of_send(send, now_ms)
