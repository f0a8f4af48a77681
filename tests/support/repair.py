"""The janitor's work, by hand and in its order, until the queue is in order again.

    1. tidy       frame and sums
    2. unsettled  page by page; each page is settled before the next: ack what a plain consumer acknowledged, hand back
                  what nobody holds, bury what is no job. All of the stream when the sums differ
    3. mend       over every id any key knows, when the sums still differ

2 before 3: `bury` gives an entry whose row was lost back to its job; to `mend` that job has no place.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from delayq.redis.calls import deliver, inspect
from delayq.redis.calls.deliver import Acked, Held, UnsettledPage
from tests.support.engine import Engine
from tests.support.snapshot import word

WHY = b'{"type":"Garbage","message":"m"}'
HASHES = ("jobs", "entries", "recoveries", "errors", "results", "cancel", "locks")
SETS = ("scheduled", "failed", "completed")


@dataclass(slots=True)
class Repairs:
    """What was done, each kind counted."""

    rounds: int = 0
    done: Counter[str] = field(default_factory=Counter)


def repair(engine: Engine, *, most: int = 4) -> Repairs:
    """Tick until a tick finds nothing; fails the test when that takes more than `most`."""
    repairs = Repairs()
    while tick(engine, repairs):
        repairs.rounds += 1
        assert repairs.rounds < most, f"still finding something after {most} ticks: {repairs.done}"
    return repairs


def tick(engine: Engine, repairs: Repairs) -> bool:
    """One tick; whether it found anything."""
    before = sum(repairs.done.values())
    sums = engine.run(deliver.tidy(engine.scope))
    repairs.done["regrouped"] += sums.regrouped
    walk(engine, repairs, everything=not sums.agree)
    if not sums.agree and not engine.run(deliver.tidy(engine.scope)).agree:
        mend_all(engine, repairs)
    return sum(repairs.done.values()) > before


def walk(engine: Engine, repairs: Repairs, *, everything: bool) -> None:
    """One pass over the delivered part, or over the whole stream."""
    after, marks = "-", ""
    while after:
        page = engine.run(deliver.unsettled(engine.scope, after, marks, everything=everything))
        settle(engine, page, repairs)
        after, marks = page.after, page.marks


def settle(engine: Engine, page: UnsettledPage, repairs: Repairs) -> None:
    """Do what a page asks for."""
    again = [Held(row.id, row.entry) for row in page.entries if row.verdict == "again"]
    garbage = [(row.entry, WHY) for row in page.entries if row.verdict == "garbage"]
    for row in page.entries:
        if row.verdict == "acked":
            info = engine.run(inspect.get(engine.scope, row.id))
            retention_ms = (info and info.envelope and info.envelope.retention_ms) or 0
            done = engine.run(deliver.ack(engine.scope, [Acked(Held(row.id, row.entry), retention_ms)]))
            repairs.done["closed"] += sum(done)
    while again:
        back = engine.run(deliver.hand_back(engine.scope, again))
        repairs.done["again"] += sum(back)
        again = again[len(back) :]
    while garbage:
        words = engine.run(deliver.bury(engine.scope, garbage))
        repairs.done.update(words)
        garbage = garbage[len(words) :]


def mend_all(engine: Engine, repairs: Repairs) -> None:
    """Every id that any key of the queue knows."""
    ids = {word(name) for key in HASHES for name in engine.client.hkeys(engine.keys.of(key))}
    ids |= {word(name) for key in SETS for name in engine.client.zrange(engine.keys.of(key), 0, -1)}
    rest = sorted(ids)
    while rest:
        words = engine.run(deliver.mend(engine.scope, rest[: deliver.PAGE]))
        repairs.done.update(name for name in words if name != "fine")
        rest = rest[len(words) :]
