"""What operators say to all workers, and what running jobs say to operators."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from delayq.core.control import Control, WorkerOrder
from delayq.redis.calls.call import Argument, Call, Nature, Scope, call, number, text
from delayq.redis.calls.deliver import Held
from delayq.redis.keys import Globals
from delayq.redis.scripts import load

UNTIL_ENDED = 0
END = -1
ORDER_KEPT_MS = 7 * 86_400_000
"""How long an order to a worker is kept; the worker prolongs it while it obeys."""
MOST_LINES = 500
MOST_BYTES = 1_000_000


class Switch(StrEnum):
    """What holds for all workers at once."""

    PAUSE = "pause"
    MAINTENANCE = "maintenance"


def switch(scope: Scope, what: Switch, for_ms: int, reason: str = "") -> Call[Control]:
    """Turn a switch for a time, `UNTIL_ENDED` or `END` it; answers all of them. The scope's queue has no part in it."""
    return call("control", scope, [scope.now, what, for_ms, reason, scope.switch], _control)


def restart(scope: Scope) -> Call[Control]:
    """Call on all workers there are to leave after their job. Sent twice it may end those that came between."""
    return call("control", scope, [scope.now, "restart", 0, "", scope.switch], _control)


def order(scope: Scope, worker: str, order: WorkerOrder) -> Call[None]:
    """Tell one worker what to do. The scope's queue has no part in it."""
    kept = "" if order is WorkerOrder.RESUME else str(order)
    key = Globals(scope.options.prefix).order(worker)
    return Call(load("order"), (key,), (kept, ORDER_KEPT_MS, scope.switch), lambda reply: None)


def read_order(reply: object) -> WorkerOrder:
    """The order that a worker's key holds; RESUME for none and for what is no order."""
    word = text(reply) if isinstance(reply, bytes) else ""
    return WorkerOrder(word) if word in tuple(WorkerOrder) else WorkerOrder.RESUME


def control(scope: Scope) -> Call[Control]:
    """The switches as they are."""
    return call("control", scope, [scope.now, "", 0, "", ""], _control, nature=Nature.READS)


def _control(reply: list[Any]) -> Control:
    now_ms, *marks, reason, paused_reason = reply
    paused, maintenance, since, restarted = (None if mark < 0 else int(mark) for mark in marks)
    return Control(int(now_ms), paused, maintenance, since, restarted, text(reason), paused_reason=text(paused_reason))


CONTROL_FIELDS = (
    "paused_until_ms",
    "maintenance_until_ms",
    "maintenance_since_ms",
    "restart_ms",
    "reason",
    "paused_reason",
)


def read_control(reply: Sequence[bytes | None], now_ms: int) -> Control:
    """The switches from the fields of their hash, as workers read them; what is no number there counts as absent."""
    *marks, reason, paused_reason = reply
    paused, maintenance, since, restarted = (number(mark) if mark and mark.isdigit() else None for mark in marks)
    said, why = text(reason or b""), text(paused_reason or b"")
    return Control(now_ms, paused, maintenance, since, restarted, said, paused_reason=why)


class Telling(NamedTuple):
    """What a running job tells: JSON without its closing brace, as `Told.encode` makes it."""

    held: Held
    document: bytes


def batches(told: Sequence[Telling]) -> Iterator[list[Telling]]:
    """As many as one call may carry, at a time."""
    some: list[Telling] = []
    size = 0
    for line in told:
        if some and (len(some) == MOST_LINES or size + len(line.document) > MOST_BYTES):
            yield some
            some, size = [], 0
        some.append(line)
        size += len(line.document)
    if some:
        yield some


def progress(scope: Scope, told: Sequence[Telling]) -> Call[list[bool]]:
    """Write what running jobs tell of themselves; True for each that was still ours."""
    args: list[Argument] = [scope.now]
    for job, document in told:
        args += (job.id, job.entry, document)
    return call("progress", scope, args, lambda reply: [value == 1 for value in reply])
