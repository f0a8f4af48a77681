"""The engine of the fault suite: scenarios in lots, seeds, a record that a run goes on from, and the figure it prints.

A scenario does `units` of something (kills, restarts, jobs) in lots. A lot begins with servers, processes and files of
its own and ends with the oracle, so lots may be run one today and one tomorrow: what a lot came to is written down when
it has passed, and a lot that is written down is not run again. The seed of a lot is the run's, the scenario's name and
the lot's number; the same three play it again, as far as a scheduler of processes can be played again.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Lot:
    """What one part of a run is to do, and where it may write."""

    scenario: str
    seed: int
    number: int
    units: int
    folder: Path
    smoke: bool = False

    @property
    def rand(self) -> random.Random:
        """The same numbers each time it is asked."""
        return random.Random(f"{self.scenario} {self.seed} {self.number}")

    @property
    def own_seed(self) -> int:
        """For those who want a number."""
        return self.rand.randrange(10**9)


@dataclass(slots=True)
class Tally:
    """What lots came to: counts, which are added up, and times in milliseconds, which are kept one by one."""

    counts: dict[str, int] = field(default_factory=dict)
    times_ms: dict[str, list[float]] = field(default_factory=dict)

    def add(self, **counts: int) -> Tally:
        """Add to counts; underscores are shown as spaces."""
        for name, count in counts.items():
            self.counts[name] = self.counts.get(name, 0) + count
        return self

    def time(self, name: str, *times_ms: float) -> Tally:
        """Add times."""
        self.times_ms.setdefault(name, []).extend(round(one, 3) for one in times_ms)
        return self

    def merge(self, other: Tally) -> None:
        """Add all of another one."""
        self.add(**other.counts)
        for name, times in other.times_ms.items():
            self.time(name, *times)

    def __str__(self) -> str:
        counts = [f"{count:,} {name.replace('_', ' ')}" for name, count in self.counts.items()]
        return ", ".join(
            counts + [f"{name.replace('_', ' ')} {spread(ms)}" for name, ms in self.times_ms.items() if ms]
        )


def spread(times_ms: list[float]) -> str:
    """Middle, 99 of 100, and the worst, in milliseconds."""
    ordered = sorted(times_ms)
    middle, late = ordered[len(ordered) // 2], ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    return f"p50 {middle:.4g} ms, p99 {late:.4g} ms, worst {ordered[-1]:.4g} ms"


def nothing_missing() -> str:
    """For scenarios that need nothing but the servers of the suite."""
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One thing that is done to delayq, and what must hold then: `play` raises AssertionError when it does not.

    `units` are done by the full tier, `smoke` of them by CI (0: not there). `missing` says why this machine cannot run
    it, in one sentence.
    """

    name: str
    holds: str
    promises: tuple[str, ...]
    unit: str
    units: int
    lot: int
    play: Callable[[Lot], Tally]
    smoke: int = 0
    missing: Callable[[], str] = nothing_missing


class Record:
    """What has been done of one scenario; a file in `folder`."""

    def __init__(self, folder: Path, scenario: str, seed: int | None = None) -> None:
        """Goes on where the file stops; with another seed than the file's it begins anew."""
        self.path = folder / f"{scenario}.json"
        self.lots: dict[int, dict[str, Any]] = {}
        found = json.loads(self.path.read_text()) if self.path.exists() else {}
        self.seed: int = random.SystemRandom().randrange(10**6) if seed is None else seed
        if found and seed in (None, found["seed"]):
            self.seed = found["seed"]
            self.lots = {int(number): lot for number, lot in found["lots"].items()}

    def has(self, number: int, units: int) -> bool:
        """Whether that lot has been done, in that size."""
        return number in self.lots and self.lots[number]["units"] == units

    def write(self, number: int, units: int, tally: Tally) -> None:
        """Keep what a lot came to."""
        told = {"units": units, "commit": commit(), "counts": tally.counts, "times_ms": tally.times_ms}
        self.lots[number] = told
        self.path.parent.mkdir(parents=True, exist_ok=True)
        anew = self.path.with_suffix(".new")
        anew.write_text(json.dumps({"seed": self.seed, "lots": self.lots}))
        anew.replace(self.path)

    def total(self) -> Tally:
        """All lots together."""
        total = Tally()
        for lot in self.lots.values():
            total.merge(Tally(lot["counts"], lot["times_ms"]))
        return total

    def commits(self) -> list[str]:
        """Of which commits the lots are."""
        return list(dict.fromkeys(str(lot["commit"]) for lot in self.lots.values()))


def lots_of(scenario: Scenario, units: int) -> Iterator[tuple[int, int]]:
    """Number and size of each."""
    for number, done in enumerate(range(0, units, scenario.lot)):
        yield number, min(scenario.lot, units - done)


def play_lot(scenario: Scenario, *, seed: int, number: int, units: int, smoke: bool = False) -> Tally:
    """One lot, in a folder that is removed unless it fails."""
    folder = Path(tempfile.mkdtemp(prefix=f"dq-{scenario.name}-"))
    tally = scenario.play(Lot(scenario.name, seed, number, units, folder, smoke))
    shutil.rmtree(folder, ignore_errors=True)
    return tally


def play(scenario: Scenario, record: Record, units: int, tell: Callable[[str], None], most: int = 0) -> Tally:
    """All lots that are not in the record yet, or the next `most`, each written down when it has passed.

    What all came to, those in the record too.
    """
    left = [(number, size) for number, size in lots_of(scenario, units) if not record.has(number, size)]
    for number, size in left[: most or None]:
        began = time.monotonic()
        tally = play_lot(scenario, seed=record.seed, number=number, units=size)
        record.write(number, size, tally)
        tell(f"{scenario.name}, seed {record.seed}, lot {number}: {tally} ({time.monotonic() - began:.0f} s)")
    return record.total()


def commit() -> str:
    """Of the checkout; '?' where there is none."""
    words = ["git", "-C", os.fspath(ROOT), "rev-parse", "--short", "HEAD"]
    found = subprocess.run(words, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "?"
