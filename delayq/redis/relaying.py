"""Carries what the outbox of a queue holds: jobs to other queues, notes and openings to batches. Without I/O.

Settling writes there in the same step in which it ends a job, so nothing is lost between the two; what is carried
twice arrives once. One relay at a time works on an outbox.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from delayq.core import follow
from delayq.core.errors import AWAY, BadEnvelope, DelayqError
from delayq.core.followups import Todo
from delayq.core.names import new_id
from delayq.redis.calls import follow as calls
from delayq.redis.calls.call import Scope
from delayq.redis.calls.follow import Owed, OwedPage, owed, todo_of
from delayq.redis.follow_verbs import FollowVerbs
from delayq.redis.verbs import Flow, Verbs


class Carried(NamedTuple):
    """How many follow-ups were carried, how many wait for the owner of a unique key, and what a person should hear."""

    carried: int = 0
    waiting: int = 0
    trouble: tuple[str, ...] = ()

    def and_then(self, other: Carried) -> Carried:
        """Both together."""
        return Carried(self.carried + other.carried, self.waiting + other.waiting, (*self.trouble, *other.trouble))


class _Item(NamedTuple):
    """One entry of an outbox, and what it asks for."""

    entry: str
    todo: Todo


class Relaying:
    """One relay on one prefix; others see by its name that it is at work."""

    def __init__(self, verbs: Verbs) -> None:
        self._verbs = verbs
        self._follow = FollowVerbs(verbs)
        self._name = new_id()

    def relay(self, shard: str) -> Flow[Carried]:
        """Carry all that can be carried now, oldest first. Raises when Redis is away; what was carried stays so."""
        scope, after, done = self._verbs.shard(shard), "-", Carried()
        while True:
            page: OwedPage = yield owed(scope, self._name, after)
            done = done.and_then((yield from self._page(scope, page.entries)))
            if page.busy or not page.more:
                return done
            after = page.entries[-1].entry

    def _page(self, scope: Scope, entries: Sequence[Owed]) -> Flow[Carried]:
        """Carry some entries together; each by itself when one of them makes trouble."""
        if not entries:
            return Carried()
        items, trouble = self._read(scope, entries, (yield from self._verbs.server_ms()))
        found = Carried(trouble=tuple(trouble))
        try:
            return found.and_then((yield from self._carry(scope, items)))
        except AWAY:
            raise
        except DelayqError:
            for item in items:
                found = found.and_then((yield from self._alone(scope, item)))
            return found

    def _read(self, scope: Scope, entries: Sequence[Owed], now_ms: int) -> tuple[list[_Item], list[str]]:
        """What entries ask for; and what is wrong with those that cannot be carried."""
        items, trouble = [], []
        for owed_entry in entries:
            place = _place(scope, owed_entry.entry)
            if now_ms - owed_entry.first_ms > follow.OWED_MS:
                trouble.append(f"{place}: first sent more than six days ago; whether it arrived can no longer be told")
                continue
            try:
                items.append(_Item(owed_entry.entry, todo_of(owed_entry, now_ms)))
            except BadEnvelope as error:
                trouble.append(f"{place}: {error}")
        return items, trouble

    def _alone(self, scope: Scope, item: _Item) -> Flow[Carried]:
        try:
            return (yield from self._carry(scope, [item]))
        except AWAY:
            raise
        except DelayqError as error:
            return Carried(trouble=(f"{_place(scope, item.entry)}: {error}",))

    def _carry(self, scope: Scope, items: Sequence[_Item]) -> Flow[Carried]:
        if not items:
            return Carried()
        ends = [(f"{scope.queue}.{item.entry}", item.todo) for item in items]
        arrived = yield from self._follow.do(ends)
        gone = [item.entry for item, there in zip(items, arrived, strict=True) if there]
        if gone:
            yield calls.carried(scope, gone)
        return Carried(len(gone), len(items) - len(gone))


def _place(scope: Scope, entry: str) -> str:
    return f"outbox of queue {scope.queue}, entry {entry}"
