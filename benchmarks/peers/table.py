"""The book as a Markdown table and as a picture."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.bars import Bar, Panel, draw, number_text
from benchmarks.peers.book import Book
from benchmarks.peers.catalog import BARE, OURS, Peer
from benchmarks.peers.measures import Measure


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
    """Bars, one panel a measure, the best on top."""
    panels = []
    for measure in measures:
        found = [(median, peer) for peer in peers if (median := book.median(peer, measure)) is not None]
        if not found:
            continue
        found.sort(key=lambda pair: pair[0], reverse=measure.more_is_better)
        better = "more" if measure.more_is_better else "less"
        bars = [Bar(peer.name, figure, peer.name.startswith(OURS)) for figure, peer in found]
        panels.append(Panel(f"{measure.title}, {measure.unit} ({better} is better)", bars))
    return draw(panels, "delayq beside other queues")


def _cell(book: Book, peer: Peer, measure: Measure) -> str:
    runs, median = book.figures(peer, measure), book.median(peer, measure)
    if median is None:
        return "broke" if book.why_not(peer, measure) else "–"
    spread = f" ({number_text(min(runs))} – {number_text(max(runs))})" if len(runs) > 1 else ""
    return f"{number_text(median)}{spread}"
