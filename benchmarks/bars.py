"""Figures as bars: an SVG that fits a page in light and dark."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final, NamedTuple

WIDTH: Final = 900
ROW: Final = 22
HEAD: Final = 34
GAP: Final = 16
LEFT: Final = 170
RIGHT: Final = 150

_STYLE: Final = (
    "text{font:13px system-ui,sans-serif;fill:#24292f}.t{font-weight:600}.b{fill:#8c959f}.o{fill:#0969da}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.b{fill:#6e7681}.o{fill:#4493f8}}"
)


class Bar(NamedTuple):
    """One of several that are compared. `ours`: it is delayq's."""

    name: str
    figure: float
    ours: bool


class Panel(NamedTuple):
    """Bars under a title, from top to bottom as they are given."""

    title: str
    bars: Sequence[Bar]


def draw(panels: Sequence[Panel], label: str) -> str:
    """All panels, one below the other. `label` is read to those who do not see it."""
    drawn, top = list[str](), 0
    for panel in panels:
        drawn.append(_panel(panel, top))
        top += HEAD + ROW * len(panel.bars) + GAP
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top}" role="img" '
        f'aria-label="{escape(label)}"><style>{_STYLE}</style>{"".join(drawn)}</svg>\n'
    )


def number_text(value: float) -> str:
    """Thousands with commas, small ones with three digits."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _panel(panel: Panel, top: int) -> str:
    drawn = [f'<text class="t" x="0" y="{top + 20}">{escape(panel.title)}</text>']
    longest = max(abs(bar.figure) for bar in panel.bars) or 1.0
    for number, bar in enumerate(panel.bars):
        y = top + HEAD + ROW * number
        width = max(1.0, (WIDTH - LEFT - RIGHT) * bar.figure / longest)
        drawn.append(
            f'<text x="{LEFT - 8}" y="{y + 13}" text-anchor="end">{escape(bar.name)}</text>'
            f'<rect class="{"o" if bar.ours else "b"}" x="{LEFT}" y="{y}" width="{width:.1f}" height="{ROW - 6}" '
            f'rx="2"/><text x="{LEFT + width + 6:.1f}" y="{y + 13}">{number_text(bar.figure)}</text>'
        )
    return "".join(drawn)
