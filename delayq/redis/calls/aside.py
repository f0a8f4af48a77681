"""What a migration calls on the queue it takes jobs from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from delayq.redis.calls.call import Call, Command, Scope, call, text


class Aside(NamedTuple):
    """A job that was set aside."""

    lot: str
    id: str
    due_ms: int
    envelope: bytes


def set_aside(scope: Scope, lot: str, ids: Sequence[str]) -> Call[list[bool]]:
    """True for each that left its queue. A shorter answer than asked means: call again with the rest."""
    return call("set_aside", scope, [scope.now, lot, *ids], lambda reply: [answer == 1 for answer in reply])


def all_aside(scope: Scope) -> Command[list[Aside]]:
    """Everything that was set aside and not dropped: never more than a few lots."""
    return Command(("HGETALL", scope.keys.of("aside")), _aside, True)


def drop(scope: Scope, lot: str, ids: Sequence[str]) -> Command[int]:
    """Forget these; how many were there."""
    return Command(("HDEL", scope.keys.of("aside"), *(f"{lot} {job_id}" for job_id in ids)), int)


def _aside(reply: Any) -> list[Aside]:
    """Fields come as a map or flat."""
    rows = reply.items() if isinstance(reply, Mapping) else zip(reply[::2], reply[1::2], strict=True)
    found = []
    for name, value in rows:
        lot, _, job_id = text(name).partition(" ")
        due, _, envelope = bytes(value).partition(b" ")
        found.append(Aside(lot, job_id, int(due), envelope))
    return sorted(found, key=lambda one: (one.lot, one.id))
