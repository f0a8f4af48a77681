"""Carries what the outbox of a queue holds: jobs to other queues, notes and openings to batches.

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
from delayq.drivers.base import Relayed
from delayq.redis.calls.call import Scope
from delayq.redis.calls.follow import Owed, carried, owed, todo_of
from delayq.redis.client import Client
from delayq.redis.follow_verbs import FollowVerbs
from delayq.redis.send import through


class _Item(NamedTuple):
    """One entry of an outbox, and what it asks for."""

    entry: str
    todo: Todo


class RedisRelay:
    """A relay over `client`'s connections."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._verbs = FollowVerbs(client.verbs)
        self._name = new_id()

    def relay(self, queue: str) -> Relayed:
        """Carry all that can be carried now, oldest first. Raises when Redis is away; what was carried stays so."""
        scope, after, done = self._client.verbs.shard(queue), "-", Relayed()
        while True:
            page = through(self._client.connector, owed(scope, self._name, after))
            done = _sum(done, self._page(scope, page.entries))
            if page.busy or not page.more:
                return done
            after = page.entries[-1].entry

    def _page(self, scope: Scope, entries: Sequence[Owed]) -> Relayed:
        """Carry some entries together; each by itself when one of them makes trouble."""
        items, trouble = self._read(scope, entries)
        found = Relayed(trouble=tuple(trouble))
        try:
            return _sum(found, self._carry(scope, items))
        except AWAY:
            raise
        except DelayqError:
            for item in items:
                found = _sum(found, self._alone(scope, item))
            return found

    def _read(self, scope: Scope, entries: Sequence[Owed]) -> tuple[list[_Item], list[str]]:
        """What entries ask for; and what is wrong with those that cannot be carried."""
        now_ms = self._client.run(self._client.verbs.server_ms())
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

    def _alone(self, scope: Scope, item: _Item) -> Relayed:
        try:
            return self._carry(scope, [item])
        except AWAY:
            raise
        except DelayqError as error:
            return Relayed(trouble=(f"{_place(scope, item.entry)}: {error}",))

    def _carry(self, scope: Scope, items: Sequence[_Item]) -> Relayed:
        if not items:
            return Relayed()
        ends = [(f"{scope.queue}.{item.entry}", item.todo) for item in items]
        arrived = self._client.run(self._verbs.do(ends))
        gone = [item.entry for item, there in zip(items, arrived, strict=True) if there]
        if gone:
            through(self._client.connector, carried(scope, gone))
        return Relayed(len(gone), len(items) - len(gone))


def _place(scope: Scope, entry: str) -> str:
    return f"outbox of queue {scope.queue}, entry {entry}"


def _sum(one: Relayed, other: Relayed) -> Relayed:
    return Relayed(one.carried + other.carried, one.waiting + other.waiting, (*one.trouble, *other.trouble))
