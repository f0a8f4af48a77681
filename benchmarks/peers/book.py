"""What was measured so far, in a file: a run that was interrupted goes on where it stopped."""

from __future__ import annotations

import json
import statistics
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.peers.catalog import Peer
from benchmarks.peers.measures import Measure


@dataclass(slots=True)
class Book:
    """Runs by peer and measure, and why a figure is missing."""

    path: Path
    about: dict[str, Any]
    runs: dict[str, list[float]] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)

    @classmethod
    def open(cls, path: Path, about: dict[str, Any], *, fresh: bool) -> Book:
        """The book of an earlier run on this machine, or an empty one."""
        if fresh or not path.exists():
            return cls(path, about)
        kept = json.loads(path.read_text(encoding="utf-8"))
        return cls(path, kept["about"], kept["runs"], kept["broken"])

    def done(self, peer: Peer, measure: Measure) -> int:
        """How many runs there are; one that broke counts as all of them."""
        place = _place(peer, measure)
        return 10**6 if place in self.broken else len(self.runs.get(place, ()))

    def add(self, peer: Peer, measure: Measure, figure: float) -> None:
        """One run more; written at once."""
        self.runs.setdefault(_place(peer, measure), []).append(figure)
        self._write()

    def give_up(self, peer: Peer, measure: Measure, why: str) -> None:
        """There is no figure, and why."""
        self.broken[_place(peer, measure)] = why
        self._write()

    def figures(self, peer: Peer, measure: Measure) -> list[float]:
        """All runs."""
        return self.runs.get(_place(peer, measure), [])

    def median(self, peer: Peer, measure: Measure) -> float | None:
        """Of its runs; None when there are none."""
        runs = self.figures(peer, measure)
        return statistics.median(runs) if runs else None

    def why_not(self, peer: Peer, measure: Measure) -> str:
        """Why there is no figure; '' when there is one, or when none was asked for."""
        return self.broken.get(_place(peer, measure), "")

    def _write(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"about": self.about, "runs": self.runs, "broken": self.broken}, indent=2)
        self.path.write_text(text + "\n", encoding="utf-8")


def _place(peer: Peer, measure: Measure) -> str:
    return f"{peer.name}: {measure.name}"
