"""Prints answers: JSON for programs, plain text for people. Data goes to stdout, everything else to stderr."""

import codecs
import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import typer

from delayq.core.display import printable
from delayq.core.errors import DelayqError, InvalidInput


class OutputLost(DelayqError):
    """The answer of a command could not be written."""


def print_json(value: Any) -> None:
    """Print one value as one line of JSON.

    If stdout is not UTF-8, all characters outside of ASCII are escaped, as JSON allows.
    """
    text = msgspec.json.encode(value).decode()
    if not text.isascii() and _is_not_utf8(sys.stdout.encoding):
        text = "".join(letter if letter.isascii() else json.dumps(letter)[1:-1] for letter in text)
    _emit(text + "\n")


def print_text(text: str) -> None:
    """Print one line of text. Control characters, and characters that the stream cannot show, are escaped."""
    _write(printable(text) + "\n")


def print_table(
    header: Sequence[str], rows: Iterable[Sequence[object]], *, below: Sequence[Sequence[str]] = ()
) -> None:
    """Print rows in aligned columns. Numbers are aligned to the right.

    `below`: for each row, lines to print indented below the row; () = none.
    """
    cells = [[printable(str(cell)) for cell in row] for row in rows]
    widths = [max(len(row[n]) for row in [list(header), *cells]) for n in range(len(header))]
    for number, row in enumerate([list(header), *cells]):
        line = "  ".join(
            cell.rjust(width) if cell.replace(",", "").isdigit() else cell.ljust(width)
            for cell, width in zip(row, widths, strict=True)
        )
        _write(line.rstrip() + "\n")
        for text in below[number - 1] if below and number else ():
            _write(f"  {printable(text)}\n")


def print_note(text: str) -> None:
    """Print a note for people on stderr."""
    print(f"delayq: {printable(text)}", file=sys.stderr, flush=True)


def confirm(deed: str, *, yes: bool) -> None:
    """Ask for confirmation on the terminal, unless `yes`. An example of `deed`: 'Delete 12 jobs of the queue orders'.

    Raises InvalidInput without a terminal, and typer.Abort if the answer is not yes.
    """
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise InvalidInput(
            f"{printable(deed)}? Nothing was done: confirmation needs a terminal.",
            hint="Add --yes.",
            field="yes",
        )
    print(f"{printable(deed)}? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise typer.Abort


def _write(text: str) -> None:
    encoding = sys.stdout.encoding or "utf-8"
    _emit(text.encode(encoding, "backslashreplace").decode(encoding))


def _emit(text: str) -> None:
    try:
        sys.stdout.write(text)
    except BrokenPipeError:
        raise  # the reader of a pipe may stop when it has enough
    except OSError as error:
        raise OutputLost(f"The output could not be written: {error.strerror}.") from None


def _is_not_utf8(encoding: str | None) -> bool:
    return codecs.lookup(encoding or "utf-8").name != "utf-8"
