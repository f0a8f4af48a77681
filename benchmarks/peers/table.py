"""The book as a Markdown table and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

from benchmarks.peers.book import Book
from benchmarks.peers.catalog import BARE, OURS, Peer
from benchmarks.peers.measures import Measure

WIDTH: Final = 900
ROW: Final = 22
HEAD: Final = 34
LEFT: Final = 170
RIGHT: Final = 150


def markdown(book: Book, peers: Sequence[Peer], measures: Sequence[Measure]) -> str:
    """Medians, with the lowest and the highest run; below, what broke and why."""
    head = ["", *(f"{measure.title}, {measure.unit}" for measure in measures)]
    rows = [[peer.name, *(_cell(book, peer, measure) for measure in measures)] for peer in peers]
    lines = ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows)]
    broken = [
        f"* {peer.name}, {measure.title}: {why}."
        for peer in peers
        for measure in measures
        if (why := book.why_not(peer, measure))
    ]
    return "\n".join([*lines, *(["", *broken] if broken else [])])


def standing(book: Book, peers: Sequence[Peer], measures: Sequence[Measure]) -> str:
    """How delayq does beside the bare protocol and beside the best of the others: more than 1 is ahead."""
    lines = ["|  | beside the bare protocol | beside the best of the others |", "| --- | --- | --- |"]
    by_name = {peer.name: peer for peer in peers}
    for measure in measures:
        found = {name: median for name in by_name if (median := book.median(by_name[name], measure)) is not None}
        ours, bare = found.get(OURS), found.get(BARE)
        rivals = [name for name in found if by_name[name].is_rival]
        if ours is None or not rivals:
            continue
        best = (max if measure.more_is_better else min)(rivals, key=found.__getitem__)
        beside_bare = "–" if bare is None else f"{_ahead(measure, ours, bare):.2f} ×"
        lines.append(f"| {measure.title} | {beside_bare} | {_ahead(measure, ours, found[best]):.2f} × {best} |")
    return "\n".join(lines)


def _ahead(measure: Measure, ours: float, other: float) -> float:
    return ours / other if measure.more_is_better else other / ours


def picture(book: Book, peers: Sequence[Peer], measures: Sequence[Measure]) -> str:
    """Bars, one panel a measure, the best on top; SVG that fits a page in light and dark."""
    panels = []
    top = 0
    for measure in measures:
        found = [(median, peer) for peer in peers if (median := book.median(peer, measure)) is not None]
        if not found:
            continue
        found.sort(key=lambda pair: pair[0], reverse=measure.more_is_better)
        panels.append(_panel(measure, found, top))
        top += HEAD + ROW * len(found) + 16
    style = (
        "text{font:13px system-ui,sans-serif;fill:#24292f}.t{font-weight:600}.b{fill:#8c959f}.o{fill:#0969da}"
        "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.b{fill:#6e7681}.o{fill:#4493f8}}"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top}" role="img" '
        f'aria-label="delayq beside other queues"><style>{style}</style>{"".join(panels)}</svg>\n'
    )


def _panel(measure: Measure, found: Sequence[tuple[float, Peer]], top: int) -> str:
    better = "more" if measure.more_is_better else "less"
    title = escape(f"{measure.title}, {measure.unit} ({better} is better)")
    drawn = [f'<text class="t" x="0" y="{top + 20}">{title}</text>']
    longest = max(figure for figure, _ in found)
    for number, (figure, peer) in enumerate(found):
        y = top + HEAD + ROW * number
        width = max(1.0, (WIDTH - LEFT - RIGHT) * figure / longest)
        kind = "o" if peer.name.startswith(OURS) else "b"
        drawn.append(
            f'<text x="{LEFT - 8}" y="{y + 13}" text-anchor="end">{escape(peer.name)}</text>'
            f'<rect class="{kind}" x="{LEFT}" y="{y}" width="{width:.1f}" height="{ROW - 6}" rx="2"/>'
            f'<text x="{LEFT + width + 6:.1f}" y="{y + 13}">{number_text(figure)}</text>'
        )
    return "".join(drawn)


def _cell(book: Book, peer: Peer, measure: Measure) -> str:
    runs, median = book.figures(peer, measure), book.median(peer, measure)
    if median is None:
        return "broke" if book.why_not(peer, measure) else "–"
    spread = f" ({number_text(min(runs))} – {number_text(max(runs))})" if len(runs) > 1 else ""
    return f"{number_text(median)}{spread}"


def number_text(value: float) -> str:
    """Thousands with commas, small ones with three digits."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
