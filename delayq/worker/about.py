"""What a worker says of one of its children, for `delayq workers` and `top`."""

from __future__ import annotations

import os
import time
from typing import Final

from delayq.core.control import WorkerOrder
from delayq.core.shards import queue_of
from delayq.worker.brood import Member
from delayq.worker.memory import resident_of
from delayq.worker.names import host_name
from delayq.worker.plan import Plan
from delayq.worker.slots import RUNNING, Hold, Seen, Stop, Word

SHOWN: Final = 10
"""Running jobs that are named; more of them are counted only."""


def about(member: Member, plan: Plan, started_ms: int, order: WorkerOrder) -> dict[str, object]:
    """Where it is, in what state, what it runs and since when (`since_ms` by the server's clock), how late."""
    now, slots = member.slots.working_clock(), member.slots
    held = slots.read()[1]
    runs = [item for item in held if item.phase == RUNNING]
    now_ms = round(time.monotonic() * 1000 + slots.floats[Word.CLOCK_MS])
    spent = [(item, max(0, round((now - item.started) * 1000))) for item in runs[:SHOWN]]
    return {
        "host": host_name(),
        "pid": member.process.pid,
        "supervisor": os.getpid(),
        "started_ms": started_ms,
        "state": state(member, order),
        "jobs": list(plan.registry.names()),
        "done": member.done,
        "held": len(held),
        "late_ms": slots.ints[Word.LATE_MS] if slots.floats[Word.READ_AT] else None,
        "memory_bytes": resident_of(member.process.pid),
        "runs": len(runs),
        "running": [
            {"id": item.claim.id, "queue": queue_of(item.claim.queue), "since_ms": now_ms - for_ms, "for_ms": for_ms}
            for item, for_ms in spent
        ],
    }


def running(member: Member) -> list[Seen]:
    """The deliveries it runs."""
    return [item for item in member.slots.read()[1] if item.phase == RUNNING]


def state(member: Member, order: WorkerOrder) -> str:
    """In one word: working, or what keeps it from that. `order` is what an operator told its worker."""
    ints = member.slots.ints
    if ints[Word.STOP] == Stop.DRAIN or ints[Word.RESTART]:
        return "leaving"
    if ints[Word.STOP] == Stop.PAUSE:
        return "quiet" if order is WorkerOrder.QUIET else "paused"
    return _STATES[Hold(ints[Word.HOLD])]


_STATES: Final = {
    Hold.NO: "working",
    Hold.PAUSED: "paused",
    Hold.MAINTENANCE: "maintenance",
    Hold.GATE: "gate closed",
}
