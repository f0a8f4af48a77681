"""Pictures as numbers: where bars and lines stand in a box of 1,000 by 100, drawn by the template as SVG. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

WIDTH: Final = 1_000
HEIGHT: Final = 100
_GAP: Final = 0.22
"""How much of its place a bar leaves free."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar, or a piece of one that stands on others. `kind` is its colour, `label` what is said on pointing at it."""

    x: float
    y: float
    width: float
    height: float
    kind: str
    label: str


@dataclass(frozen=True, slots=True)
class Line:
    """A line as the path of an SVG, broken where nothing is known, and the name of what it shows."""

    path: str
    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Chart:
    """What the template draws, and the table behind it: `heads`, and a row for each place on the axis.

    `top` is the number at the upper edge; `floor` the one at the lower edge where that is not 0.
    """

    name: str
    summary: str
    top: str
    axis: tuple[str, ...]
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    bars: tuple[Bar, ...] = ()
    lines: tuple[Line, ...] = ()
    legend: tuple[tuple[str, str], ...] = field(default=())
    floor: str = ""


@dataclass(frozen=True, slots=True)
class Series:
    """Numbers in order, with a name and a colour; None = nothing is known there."""

    name: str
    kind: str
    values: tuple[float | None, ...]


def ceiling(most: float) -> float:
    """The next round number above: 1, 2, 3, 4, 5, 6, 8, 10, 20, 30 and so on."""
    if most <= 1:
        return 1
    step = 10.0 ** math.floor(math.log10(most))
    return next((size * step for size in (1, 2, 3, 4, 5, 6, 8) if size * step >= most), 10 * step)


def bars(series: Sequence[Series], labels: Sequence[str]) -> tuple[tuple[Bar, ...], float]:
    """One bar a place, the series on top of each other; and the number at the top edge."""
    sums = [sum(one.values[n] or 0 for one in series) for n in range(len(labels))]
    top, place = ceiling(max(sums, default=0)), WIDTH / max(1, len(labels))
    found: list[Bar] = []
    for n, label in enumerate(labels):
        below = 0.0
        for one in series:
            value = one.values[n] or 0
            height = max(value / top * HEIGHT, 1.2) if value else 0.0  # what is there can be seen
            if height:
                said = f"{label}: {value:,.0f} {one.name}"
                y = max(0.0, HEIGHT - below - height)
                x = round((n + _GAP / 2) * place, 2)
                found.append(Bar(x, round(y, 2), round(place * (1 - _GAP), 2), round(height, 2), one.kind, said))
            below += height
    return tuple(found), top


def lines(series: Sequence[Series], floor: float = 0.0) -> tuple[tuple[Line, ...], float]:
    """A line for each series, all on one scale; and the number at the top edge.

    With a `floor` the scale is logarithmic and begins there: each step up is the same number of times more.
    """
    top = ceiling(max((value for one in series for value in one.values if value is not None), default=0))
    top = max(top, floor * 10)
    return tuple(Line(_path(one.values, top, floor), one.kind, one.name) for one in series), top


def _path(values: Sequence[float | None], top: float, floor: float) -> str:
    place = WIDTH / max(1, len(values) - 1)
    words: list[str] = []
    pen = False
    for n, value in enumerate(values):
        if value is not None:
            y = HEIGHT - _share(value, top, floor) * (HEIGHT - 1)
            words.append(f"{'L' if pen else 'M'}{n * place:.1f} {y:.1f}")
            if not pen and (n + 1 == len(values) or values[n + 1] is None):  # a lone point would not be drawn
                words.append(f"l{place * 0.4:.1f} 0")
        pen = value is not None
    return " ".join(words)


def _share(value: float, top: float, floor: float) -> float:
    """How far up a value stands, 0.0 to 1.0."""
    if floor:
        return max(0.0, min(1.0, math.log(max(value, floor) / floor) / math.log(top / floor)))
    return min(1.0, value / top)
