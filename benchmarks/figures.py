"""What a measure brings home: samples, rows, targets."""

from __future__ import annotations

import operator
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

_COMPARE: Final[dict[str, Callable[[float, float], bool]]] = {"≥": operator.ge, "≤": operator.le}


@dataclass(frozen=True, slots=True)
class Samples:
    """One figure, measured several times."""

    values: tuple[float, ...]
    unit: str

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def low(self) -> float:
        return min(self.values)

    @property
    def high(self) -> float:
        return max(self.values)


def ratios(above: Samples, below: Samples) -> Samples:
    """Ratio of each pair of neighbouring runs: noise that lasts longer than a run hits both and falls out."""
    pairs = zip(above.values, below.values, strict=True)
    return Samples(tuple(one / other for one, other in pairs), "×")


@dataclass(frozen=True, slots=True)
class Target:
    """What is wanted of a row's ratio, or of our own figure where there is nothing to compare with.

    `later` is what a later stage of the project wants; it is shown and never asserted.
    """

    sign: str
    value: float
    later: float | None = None

    def met(self, value: float) -> bool:
        return _COMPARE[self.sign](value, self.value)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. `raw` is the bare protocol's figure; `target` is of `ratio` if there is one."""

    what: str
    ours: Samples
    raw: Samples | None = None
    ratio: Samples | None = None
    target: Target | None = None

    @property
    def judged(self) -> float:
        """The number the target speaks of."""
        return self.ratio.median if self.ratio else self.ours.median

    @property
    def verdict(self) -> str:
        """`met`, `missed`, or nothing where nothing was asked for."""
        if self.target is None:
            return ""
        return "met" if self.target.met(self.judged) else "missed"


@dataclass(frozen=True, slots=True)
class Report:
    """What one measure found. `notes` are sentences for below the table."""

    rows: Sequence[Row]
    notes: Sequence[str] = ()


def compared(what: str, ours: Samples, raw: Samples, target: Target | None) -> Row:
    """A row whose target is of the ratio ours/raw."""
    return Row(what, ours, raw, ratios(ours, raw), target)
