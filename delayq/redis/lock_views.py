"""Locks of unique keys for people: look at them, and free one by hand. Flows over the verbs they are given."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from delayq.core.audit import Deed, check_reason
from delayq.core.errors import InvalidInput, LockNotFound
from delayq.core.limiting import Unlocked
from delayq.core.lock_views import LockView
from delayq.core.states import State
from delayq.core.unique import Until, unique_digest, until_of
from delayq.core.views import JobInfo
from delayq.redis.audit import Audit
from delayq.redis.calls import inspect, lock
from delayq.redis.calls.call import Command, Scope, text
from delayq.redis.finding import every_shard
from delayq.redis.verbs import Flow, Verbs

PAGE: Final = 500
MOST: Final = ".most"
"""What the row ends with that says until when a debounced job waits at most: it goes with the lock."""


class LockViews:
    """Of one prefix."""

    def __init__(self, verbs: Verbs) -> None:
        self._verbs = verbs
        self._audit = Audit(verbs)

    def every(self, queue: str | None, limit: int) -> Flow[list[LockView]]:
        """At most `limit` locks of one queue, or of all known, by queue and owner."""
        queues = (yield from self._verbs.queues()) if queue is None else [self._verbs.scope(queue).queue]
        found: list[LockView] = []
        for name in queues:
            for scope in (yield from every_shard(self._verbs, name)):
                if len(found) < limit:
                    found += yield from self._of_shard(scope, limit - len(found))
        return sorted(found, key=lambda view: (view.queue, view.owner))

    def _of_shard(self, scope: Scope, limit: int) -> Flow[list[LockView]]:
        where, cursor = scope.keys.of("unique"), "0"
        rows: dict[str, str] = {}
        while True:
            cursor, some = yield Command(("HSCAN", where, cursor, "COUNT", PAGE), _page, True)
            rows |= {name: value for name, value in some.items() if not name.endswith(MOST)}
            if cursor == "0" or len(rows) >= limit:
                break
        found: list[LockView] = []
        for name, value in list(rows.items())[:limit]:
            found += [(yield from self._view(scope, name, value))]
        return found

    def one(self, name: str, queue: str | None) -> Flow[LockView]:
        """One lock. Raises `LockNotFound` when nobody has it."""
        _, view = yield from self._found(name, queue)
        return view

    def _found(self, name: str, queue: str | None) -> Flow[tuple[Scope, LockView]]:
        queue = self._verbs.scope(queue).queue
        for scope in (yield from every_shard(self._verbs, queue)):
            value: str = yield Command(("HGET", scope.keys.of("unique"), name), _text, True)
            if value:
                return scope, (yield from self._view(scope, name, value))
        raise LockNotFound(
            f"Nobody holds the lock {name!r} in queue {queue!r}.", hint="`delayq lock list` tells who does."
        )

    def free(self, name: str, queue: str | None, reason: str) -> Flow[LockView]:
        """Free a lock; its owner goes on. The reason is on record before. Raises as `one`, and `InvalidInput`."""
        deed_reason = check_reason(reason)
        scope, view = yield from self._found(name, queue)

        def act() -> Flow[LockView]:
            freed: Unlocked = yield lock.unlock(scope, view.owner, name)
            if freed is not Unlocked.FREED:
                raise LockNotFound(f"The lock {name!r} in queue {view.queue!r} was freed by its owner meanwhile.")
            return view

        deed = Deed("lock free", f"{view.queue} {name}", deed_reason, view.owner)
        return (yield from self._audit.around(deed, act()))

    def _view(self, scope: Scope, name: str, value: str) -> Flow[LockView]:
        owner, _, end = value.partition(" ")
        info: JobInfo | None = yield inspect.get(scope, owner)
        envelope = info.envelope if info else None
        until = until_of((envelope.unique if envelope else None) or name)
        return LockView(
            scope.name,
            name,
            Until.WINDOW if end else until,
            owner,
            info.state if info else State.ABSENT,
            envelope.name if envelope else "",
            envelope.created_ms if envelope else None,
            int(end) if end.isdigit() else None,
        )


def lock_of(key: str | None, name: str | None) -> str:
    """What a lock is called that somebody names by itself or by the text of its key. Raises `InvalidInput`."""
    if (key is None) is (name is None):
        raise InvalidInput("A lock is named by its digest or by its key.", hint="Give LOCK, or --key TEXT.")
    return unique_digest(key) if key is not None else name or ""


def _page(reply: Any) -> tuple[str, Mapping[str, str]]:
    """RESP2 answers rows flat, RESP3 as a map."""
    cursor, rows = reply
    pairs: Iterable[Any] = rows.items() if isinstance(rows, dict) else zip(rows[::2], rows[1::2], strict=True)
    return text(cursor) if isinstance(cursor, bytes) else str(cursor), {text(k): text(v) for k, v in pairs}


def _text(reply: bytes | None) -> str:
    return text(reply or b"")
