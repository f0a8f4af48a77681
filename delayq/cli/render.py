"""The only module that prints, but for log lines (`logs`) and a worker's events (`events`).

Data goes to stdout, chatter and errors to stderr.

On a terminal tables are rich's (which knows NO_COLOR); anywhere else they are plain columns, never cut and without a
single escape byte. What came from Redis passes through `printable` first: a payload must not drive a terminal.
"""

from __future__ import annotations

import codecs
import errno
import os
import re
import sys
import traceback
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from delayq.cli.printable import encodable, printable
from delayq.core.errors import DelayqError, InvalidInput

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

    from delayq.cli.board import Board

Row = Sequence[object]

# Bytes of JSON that a terminal would act on, or that would break a line of NDJSON. Inside a string an escape says
# the same; the line breaks can only stand between tokens.
_BLANKS: Final = re.compile(r"[\t\n\r]+")
# With those that turn the direction of writing around, or have no width: text could look like another.
_CONTROLS: Final = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
_NOT_ASCII: Final = re.compile("[^\x00-\x7f]")


class Declined(DelayqError):
    """Nothing was done."""


@dataclass(slots=True)
class Output:
    """Where a command's words go. `quiet` drops the chatter; data and errors stay."""

    quiet: bool = False

    def line(self, text: str) -> None:
        """One line of data. Flushed: somebody may follow it through a pipe."""
        _put(f"{printable(text)}\n")

    def json(self, value: Any) -> None:
        """One JSON document on one line, all text as it is, control characters escaped. Flushed: somebody may wait.

        A stdout that is not UTF-8 gets everything beyond ASCII escaped.
        """
        text = _CONTROLS.sub(_escaped, _BLANKS.sub(" ", _encoded(value)))
        _put(f"{text if _is_utf8() else _NOT_ASCII.sub(_escaped, text)}\n")

    def table(self, columns: Sequence[str], rows: Iterable[Row], *, numbers: Sequence[str] = ()) -> None:
        """Rows under headings; the columns named in `numbers` stand to the right."""
        cells = [[printable(str(cell)) for cell in row] for row in rows]
        if _is_terminal():
            _rich_table(columns, cells, numbers)
        else:
            _plain_table(columns, cells, numbers)

    def board(self, shown: Board) -> None:
        """Tables below each other, each under its title; the warnings go to stderr."""
        for line in shown.warnings:
            self.note(line)
        for section in shown.sections:
            self.line(section.title)
            self.table(section.columns, section.rows, numbers=section.numbers)
            self.line("")

    @property
    def is_live(self) -> bool:
        """Whether somebody looks at a terminal that can show something again in the same place."""
        return _is_terminal()

    def live(self, boards: Iterable[Board]) -> None:
        """Show each in the place of the one before, until Ctrl-C; the last one stays."""
        from rich.console import Console
        from rich.live import Live

        with suppress(KeyboardInterrupt), Live(console=Console(), auto_refresh=False) as live:
            for shown in boards:
                live.update(_rich_board(shown), refresh=True)

    def record(self, fields: Iterable[tuple[str, object]]) -> None:
        """One thing, a field a line; a value of several lines stands below its name."""
        shown = [(name, str(value)) for name, value in fields if value not in (None, "")]
        width = max((len(name) for name, _ in shown), default=0)
        for name, value in shown:
            first, *rest = value.rstrip("\n").split("\n")
            if not rest:
                self.line(f"{name:<{width}}  {first}")
                continue
            self.line(name)
            for part in (first, *rest):
                self.line(f"    {part}")

    def note(self, text: str) -> None:
        """A remark for people."""
        if not self.quiet:
            sys.stderr.write(f"{printable(text)}\n")

    def error(self, message: str, hint: str = "") -> None:
        """Cause and value, then the next step."""
        for part in (f"Error: {message}", hint):
            for line in part.splitlines():
                sys.stderr.write(f"{printable(line)}\n")

    def traceback(self, error: BaseException) -> None:
        """Where it came from, in full."""
        for line in "".join(traceback.format_exception(error)).splitlines():
            sys.stderr.write(f"{printable(line)}\n")

    @property
    def can_ask(self) -> bool:
        """Whether a person is there to answer a question."""
        return sys.stdin.isatty() and sys.stderr.isatty()

    def confirm(self, question: str, *, yes: bool) -> None:
        """Ask before something that cannot be undone; with nobody to ask, `--yes` must have been given."""
        if yes:
            return
        if not self.can_ask:
            raise InvalidInput(f"{question} Nobody is there to be asked.", hint="Say --yes to do it without asking.")
        sys.stderr.write(f"{printable(question)} [y/N]: ")
        sys.stderr.flush()
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise Declined


def _encoded(value: Any) -> str:
    """`value` as JSON. Bytes of others that are no UTF-8 become the replacement character."""
    import msgspec

    try:
        raw = msgspec.json.encode(value)
    except UnicodeEncodeError:
        raw = msgspec.json.encode(encodable(value))
    return raw.decode("utf-8", "replace")


def _escaped(found: re.Match[str]) -> str:
    """A character as JSON escapes it: beyond U+FFFF as a surrogate pair."""
    units = found[0].encode("utf-16-be")
    return "".join(f"\\u{units[n : n + 2].hex()}" for n in range(0, len(units), 2))


def _is_utf8() -> bool:
    return codecs.lookup(sys.stdout.encoding).name == "utf-8"


def _put(text: str) -> None:
    """Write and flush, so that what goes wrong is met here and not when the interpreter ends.

    What the encoding of stdout has no bytes for is escaped.

    A reader that left is no error, and no reason to stop half-way: the command goes on to its own exit code.
    """
    try:
        if not _is_utf8():
            text = text.encode(sys.stdout.encoding, "backslashreplace").decode(sys.stdout.encoding)
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        _mute()
        if error.errno != errno.EPIPE:
            why = error.strerror or str(error)
            raise DelayqError(
                f"The output cannot be written: {why[:1].lower()}{why[1:]}.",
                hint="The command itself may have done its work; `delayq show` and `delayq list` tell.",
            ) from error


def _mute() -> None:
    """Send what stdout still holds, and all that follows, nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _is_terminal() -> bool:
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def _plain_table(columns: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[str]) -> None:
    lines = [list(columns), *rows]
    widths = [max(len(line[n]) for line in lines) for n in range(len(columns))]
    shown: list[str] = []
    for line in lines:
        cells = (
            cell.rjust(width) if name in numbers else cell.ljust(width)
            for name, cell, width in zip(columns, line, widths, strict=True)
        )
        shown.append(f"{'  '.join(cells).rstrip()}\n")
    _put("".join(shown))


def _rich_table(columns: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[str]) -> None:
    from rich.console import Console

    try:
        Console().print(_made(columns, rows, numbers))
    except UnicodeEncodeError:  # nothing was written: a terminal that is not UTF-8
        _plain_table(columns, rows, numbers)


def _rich_board(shown: Board) -> Group:
    from rich.console import Group, RenderableType
    from rich.text import Text

    head = [Text(printable(line), style="bold") for line in shown.head]
    warnings = [Text(printable(line), style="bold red") for line in shown.warnings]
    tables: list[RenderableType] = []
    for section in shown.sections:
        cells = [[printable(cell) for cell in row] for row in section.rows]
        tables += [Text(section.title, style="bold"), _made(section.columns, cells, section.numbers)]
    return Group(*head, *warnings, *tables)


def _made(columns: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[str]) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in columns:
        table.add_column(name, justify="right" if name in numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table
