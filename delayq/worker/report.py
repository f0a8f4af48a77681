"""What runs where, for a person: logged on TTIN."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from delayq.worker.brood import Member
from delayq.worker.clock import boot_clock
from delayq.worker.slots import RUNNING, Stop, Word

STALLED_S = 0.5


def report(members: Iterable[Member], done: int) -> list[str]:
    """Each child, what it holds and runs, and for how long, line by line."""
    return [f"delayq worker, process {os.getpid()}: {done:,} jobs ended", *_lines(members)]


def _lines(members: Iterable[Member]) -> Iterator[str]:
    for member in members:
        slots = member.slots
        now = slots.working_clock()
        held = slots.read()[1]
        running = [item for item in held if item.phase == RUNNING]
        state = Stop(slots.ints[Word.STOP]).name.lower().replace("no", "working")
        yield (
            f"  child {member.number}, process {member.process.pid}: {state}, holds {len(held)}, runs {len(running)}, "
            f"{member.done:,} ended, {slots.ints[Word.FENCED]:,} of them too late"
        )
        silent_s = boot_clock() - slots.floats[Word.LOOKED_AT] if slots.floats[Word.LOOKED_AT] else 0.0
        if silent_s > STALLED_S:
            yield f"    its interpreter has been held for {silent_s:.1f} s"
        for item in running:
            left = f", {item.soft_at - now:.1f} s left" if item.soft_at else ""
            yield f"    {item.claim.queue}/{item.claim.id} for {now - item.started:.1f} s{left}"
