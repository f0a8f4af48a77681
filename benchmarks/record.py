"""What a run has measured so far, in a folder: one that is stopped keeps what it had, and can go on there.

    results.json    every single run, with the commit and the machine
    results.md      the table
    results.svg     the same as bars

All three are written anew after each measure, each in one step. Measures of another commit, or asked for otherwise
(`--repeats`, `--growth`, another server), are not kept beside these.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks.figures import Report
from benchmarks.machine import sentences
from benchmarks.report import document, markdown, picture, read_reports

SAME: Final = ("commit", "quick", "repeats", "growth", "server", "processor", "cores")
"""What figures must have in common to stand in one table."""


@dataclass(slots=True)
class Record:
    """Reports by measure. `about` is the machine, the commit, and how it was asked for."""

    folder: Path
    about: Mapping[str, Any]
    reports: dict[str, Report] = field(default_factory=dict)

    @classmethod
    def open(cls, folder: Path, about: Mapping[str, Any]) -> Record:
        """The record of an earlier run that asked the same of the same commit, or an empty one."""
        path = folder / "results.json"
        if path.exists():
            kept = json.loads(path.read_text(encoding="utf-8"))
            if all(kept.get(name) == about[name] for name in SAME):
                return cls(folder, about, read_reports(kept["measures"]))
        return cls(folder, about)

    @property
    def judged(self) -> bool:
        """Whether it says of targets that they are met or missed."""
        return not self.about["quick"]

    def add(self, name: str, report: Report) -> None:
        """One measure more, or again; written at once."""
        self.reports[name] = report
        self.folder.mkdir(parents=True, exist_ok=True)
        _write(self.folder / "results.json", document(self.reports, self.about, judged=self.judged))
        _write(self.folder / "results.md", self.table(list(self.reports)) + "\n")
        _write(self.folder / "results.svg", picture(self.reports))

    def table(self, names: Sequence[str]) -> str:
        """Of some measures."""
        some = {name: self.reports[name] for name in names}
        said = markdown(some, sentences(dict(self.about)), judged=self.judged)
        return said if self.judged else f"{said}\n\nA smoke run (--quick): everything runs; its figures mean nothing."


def _write(path: Path, text: str) -> None:
    """Whoever reads it finds all of it, or what was there before."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)
