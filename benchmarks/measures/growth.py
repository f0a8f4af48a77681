"""Whether a deep backlog slows anything down more than it slows the bare scripts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.figures import Report, Row, Samples, Target
from benchmarks.fill import fill, fill_raw
from benchmarks.measures.consume import plain
from benchmarks.plan import Plan, side_by_side, timed
from benchmarks.raw import RawQueue
from benchmarks.rig import Rig, quiet_logs, rig_on
from benchmarks.shared import Marks
from benchmarks.work import raw_jobs, specs
from delayq.redis.scripts import load, names

NAME = "growth"
SHALLOW = 10_000
JOBS = 10_000
DUE_MS = 2_000_000_000_000
SLOW_US = 10_000
# "No more than the bare scripts": two noisy ratios are compared, so a twentieth more still counts as no more.
TARGET = Target("≤", 1.05)

Rates = dict[str, tuple[Samples, Samples]]


def run(plan: Plan) -> Report:
    """Rates at both depths, on a fresh server each; the slowdowns compared; and what SLOWLOG holds of ours."""
    depths = (plan.size(SHALLOW), plan.size(plan.growth))
    found = [at_depth(plan, depth) for depth in depths]
    rows = []
    for verb, (ours, raw) in found[1][0].items():
        ours_before, raw_before = found[0][0][verb]
        slower, raw_slower = ours_before.median / ours.median, raw_before.median / raw.median
        what = f"{verb}: slowdown from {depths[0]:,} to {depths[1]:,} waiting"
        ratio = Samples((slower / raw_slower,), "×")
        rows.append(Row(what, Samples((slower,), "×"), Samples((raw_slower,), "×"), ratio, TARGET))
    slow = [line for _, lines in found for line in lines]
    rows.append(Row("our scripts in SLOWLOG above 10 ms", Samples((float(len(slow)),), "calls"), target=Target("≤", 0)))
    return Report(rows, slow)


def at_depth(plan: Plan, depth: int) -> tuple[Rates, list[str]]:
    """The three rates with `depth` jobs waiting on both sides, and what was slow among our scripts."""
    jobs = plan.size(JOBS)
    slowlog = ("--slowlog-log-slower-than", str(SLOW_US), "--slowlog-max-len", "10000")
    with plan.server(*slowlog) as server, server.client() as client, rig_on(server) as rig, quiet_logs():
        raw = RawQueue(client)
        raw.reset()
        fill(client, rig.options.prefix, depth)
        fill_raw(client, depth)
        client.slowlog_reset()
        rivals = _rivals(rig, raw, jobs)
        rates = {verb: side_by_side(plan, jobs, ours, theirs) for verb, (ours, theirs) in rivals.items()}
        return rates, _slow(client)


def _rivals(rig: Rig, raw: RawQueue, jobs: int) -> dict[str, tuple[Callable[[], float], Callable[[], float]]]:
    """For each verb the two sides. They run in this order, and each leaves the backlog as it found it."""
    given = raw_jobs(jobs)
    wanted = specs(jobs)

    def schedule() -> float:
        took = timed(lambda: rig.client.schedule_many(wanted))
        rig.promote_at(DUE_MS)
        _drain(rig)
        return took

    def promote() -> float:
        rig.client.schedule_many(wanted)
        took = timed(lambda: rig.promote_at(DUE_MS))
        _drain(rig)
        return took

    def consume() -> float:
        rig.client.schedule_many(wanted)
        rig.promote_at(DUE_MS)
        return _drain(rig)

    def raw_turn(which: int) -> float:
        took = (
            timed(lambda: raw.schedule_many(given, 1)),
            timed(lambda: raw.promote_all(DUE_MS)),
            timed(raw.consume_all),
        )
        raw.forget(given)
        return took[which]

    return {
        "schedule": (schedule, lambda: raw_turn(0)),
        "promote": (promote, lambda: raw_turn(1)),
        "consume": (consume, lambda: raw_turn(2)),
    }


def _slow(client: Any) -> list[str]:
    """A line for each call of one of our scripts that held the server for more than 10 ms."""
    ours = {load(name).sha.encode(): name for name in names()}
    found = []
    for entry in client.slowlog_get(10_000):
        words = entry["command"].split()
        name = ours.get(words[1]) if len(words) > 1 and words[0] in (b"EVALSHA", b"EVAL") else None
        if name is not None:
            found.append(f"SLOWLOG: {name}.lua took {entry['duration'] / 1_000:.1f} ms.")
    return found


def _drain(rig: Rig) -> float:
    first = Marks(1)
    return rig.drain(plain(first), first)
