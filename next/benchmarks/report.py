"""Prints what was compared: a table for people, one line of JSON a figure for programs."""

import json
from collections.abc import Iterable, Sequence

from benchmarks.figures import Comparison

HEADER = ("measure", "figure", "unit", "first edition", "second edition", "ratio", "of the pairs", "wanted", "")


def print_table(comparisons: Sequence[Comparison]) -> None:
    """Print a table in Markdown: medians, the ratio of the medians, and the span of the ratios of single pairs."""
    rows = [_row(comparison) for comparison in comparisons]
    widths = [max(len(row[n]) for row in [HEADER, *rows]) for n in range(len(HEADER))]
    print(_line(HEADER, widths))
    print("|" + "|".join("-" * (width + 2) for width in widths) + "|")
    for row in rows:
        print(_line(row, widths))


def print_json(comparisons: Iterable[Comparison]) -> None:
    """Print one line of JSON for each figure."""
    for comparison in comparisons:
        first, second = comparison.medians
        shape = {
            "measure": comparison.measure,
            "figure": comparison.figure.name,
            "unit": comparison.figure.unit,
            "first": first,
            "second": second,
            "ratio": comparison.ratio,
            "ratio_min": comparison.ratios[0],
            "ratio_max": comparison.ratios[1],
            "wanted": comparison.figure.wanted,
            "holds": comparison.holds,
            "first_runs": list(comparison.first),
            "second_runs": list(comparison.second),
        }
        print(json.dumps(shape, ensure_ascii=False))


def _row(comparison: Comparison) -> tuple[str, ...]:
    figure = comparison.figure
    first, second = comparison.medians
    smallest, largest = comparison.ratios
    verdict = "" if not figure.wanted else "holds" if comparison.holds else "MISS"
    return (
        comparison.measure,
        figure.name,
        figure.unit,
        _number(first),
        _number(second),
        f"{comparison.ratio:.2f}",
        f"{smallest:.2f}–{largest:.2f}",
        figure.wanted,
        verdict,
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}"


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) + " |"
