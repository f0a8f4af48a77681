"""What a measure finds, and what is asked of it."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Found = dict[str, float]
"""The figures of one run, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One number of a measure.

    `least_ratio` and `most_ratio` bound the second edition's median over that of the first; `most` bounds the second
    edition's median itself. A figure without a bound is there to explain another.
    """

    name: str
    unit: str
    least_ratio: float | None = None
    most_ratio: float | None = None
    most: float | None = None

    @property
    def wanted(self) -> str:
        """The bound in words; '' without one."""
        if self.least_ratio is not None:
            return f"≥ {self.least_ratio:g} ×"
        if self.most_ratio is not None:
            return f"≤ {self.most_ratio:g} ×"
        return "" if self.most is None else f"≤ {self.most:g}"

    def holds(self, ratio: float, second: float) -> bool:
        """Tell whether the medians keep the bound. They are compared as they are printed, in two decimal places."""
        ratio, second = round(ratio, 2), round(second, 2)
        if self.least_ratio is not None:
            return ratio >= self.least_ratio
        if self.most_ratio is not None:
            return ratio <= self.most_ratio
        return self.most is None or second <= self.most


@dataclass(frozen=True, slots=True)
class Measure:
    """One benchmark. `run` measures the edition that runs it, on the empty server at an address."""

    name: str
    run: Callable[[str], Found]
    figures: Sequence[Figure]
    pairs: int = 7
    """How often each edition is measured when the caller says nothing. Exact counts need few."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A figure of both editions, measured in pairs."""

    measure: str
    figure: Figure
    first: Sequence[float]
    second: Sequence[float]

    @property
    def medians(self) -> tuple[float, float]:
        """The median of each edition."""
        return statistics.median(self.first), statistics.median(self.second)

    @property
    def ratio(self) -> float:
        """The second edition's median over the first's."""
        first, second = self.medians
        return _over(second, first)

    @property
    def ratios(self) -> tuple[float, float]:
        """The smallest and the largest ratio of one pair."""
        ratios = [_over(second, first) for first, second in zip(self.first, self.second, strict=True)]
        return min(ratios), max(ratios)

    @property
    def holds(self) -> bool:
        """Whether the bound is kept."""
        return self.figure.holds(self.ratio, self.medians[1])


def _over(second: float, first: float) -> float:
    return second / first if first else float("nan")


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which `share` of all values lie."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]
