"""How answers are printed: JSON for programs, plain text for people. Data goes to stdout."""

import sys
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec


def print_json(value: Any) -> None:
    """Print one value as one line of JSON."""
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")


def print_text(text: str) -> None:
    """Print one line for people. Control characters of ids and messages are escaped."""
    sys.stdout.write(printable(text) + "\n")


def print_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows in aligned columns; numbers stand to the right."""
    cells = [[printable(str(cell)) for cell in row] for row in rows]
    widths = [max(len(row[n]) for row in [list(header), *cells]) for n in range(len(header))]
    for row in [list(header), *cells]:
        line = "  ".join(
            cell.rjust(width) if cell.replace(",", "").isdigit() else cell.ljust(width)
            for cell, width in zip(row, widths, strict=True)
        )
        sys.stdout.write(line.rstrip() + "\n")


def printable(text: str) -> str:
    """Return text without what rewrites a terminal: control characters and direction marks are escaped."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)
