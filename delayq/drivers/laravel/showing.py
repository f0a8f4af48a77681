"""Looks at Laravel's queues without taking anything: which there are, how long they are, what waits in them."""

from __future__ import annotations

from typing import TypeVar

from delayq.core.errors import BadEnvelope, InvalidInput, InvalidName
from delayq.core.names import check_queue
from delayq.core.shown import shown
from delayq.drivers.broker import Depth, Waiting, WaitingPage
from delayq.drivers.laravel.payload import label, read_payload
from delayq.redis.calls import laravel as calls
from delayq.redis.calls.call import Command
from delayq.redis.connect import Connector
from delayq.redis.laravel_keys import LaravelKeys
from delayq.redis.send import send

T = TypeVar("T")


class LaravelLook:
    """Of one application's queues."""

    def __init__(self, connector: Connector, prefix: str) -> None:
        self._connector = connector
        self._prefix = prefix

    def server_ms(self) -> int:
        """The server's time."""
        return self._ask(calls.server_time())

    def queues(self) -> list[str]:
        """All queues that hold something and have a name delayq can use; found by a walk over all keys there are."""
        found: set[str] = set()
        cursor = -1
        while cursor:
            cursor, names = self._ask(calls.scan(self._prefix, max(0, cursor)))
            found.update(filter(_usable, names))
        return sorted(found)

    def depth(self, queue: str) -> Depth:
        """Its three parts."""
        keys = LaravelKeys(self._prefix, queue)
        return Depth(*(self._ask(calls.length(keys, role)) for role in ("list", "delayed", "reserved")))

    def page(self, queue: str, now_ms: int, *, cursor: str, count: int) -> WaitingPage:
        """`cursor`: 'list N' or 'delayed TIME N'. What workers take meanwhile moves the list's others up."""
        keys = LaravelKeys(self._prefix, queue)
        role, *mark = cursor.split(" ") if cursor else ("list", "0")
        try:
            first = int(mark[-1])
            since = mark[0] if role == "delayed" else "-inf"
            float(since)
        except (ValueError, IndexError):
            raise InvalidInput(f"{shown(cursor)} is no cursor of this list.", hint="Begin without one.") from None
        jobs: list[Waiting] = []
        if role == "list":
            jobs = [_waiting(queue, "list", raw, now_ms, now_ms) for raw in self._ask(calls.ready(keys, first, count))]
            if len(jobs) == count:
                return WaitingPage(tuple(jobs), f"list {first + count}")
            first = 0
        scored = self._ask(calls.delayed(keys, since, first, count - len(jobs)))
        jobs += [_waiting(queue, "delayed", raw, int(due * 1000), now_ms) for raw, due in scored]
        if len(jobs) < count:
            return WaitingPage(tuple(jobs), "")
        last = f"{scored[-1][1]!r}"
        seen = sum(repr(due) == last for _, due in scored) + (first if last == since else 0)
        return WaitingPage(tuple(jobs), f"delayed {last} {seen}")

    def _ask(self, command: Command[T]) -> T:
        return self._connector.call(lambda client: send(client, command), safe=True, reads=True)


def _waiting(queue: str, role: str, raw: bytes, due_ms: int, now_ms: int) -> Waiting:
    """What cannot be read is shown as it is."""
    entry = f"{role} {raw.decode('utf-8', 'surrogateescape')}"
    try:
        payload = read_payload(raw)
        envelope = payload.envelope(queue=queue, attempts=payload.attempts or 0, seen_ms=now_ms)
    except BadEnvelope as error:
        return Waiting(label(raw)[0], queue, entry, raw, due_ms, unreadable=str(error))
    return Waiting(payload.id, queue, entry, envelope, due_ms)


def _usable(queue: str) -> bool:
    try:
        check_queue(queue)
    except InvalidName:
        return False
    return True
