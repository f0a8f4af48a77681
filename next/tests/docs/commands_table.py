"""Writes the table of docs/commands.md from the command line: `python -m tests.docs.commands_table`."""

import re
from collections.abc import Iterator
from typing import Final

from typer import Context
from typer.core import TyperGroup
from typer.main import get_command

from delayq.cli.families import COMMANDS
from delayq.cli.main import app
from tests.docs.pages import DOCS

PAGE: Final = DOCS / "commands.md"
_TABLE: Final = re.compile(r"(<!-- commands -->\n).*?(<!-- end -->)", re.S)


def page_with_table() -> str:
    """Return the page as it must be."""
    return _TABLE.sub(lambda marks: marks[1] + "\n".join(_lines()) + "\n" + marks[2], PAGE.read_text())


def _lines() -> Iterator[str]:
    root = get_command(app)
    assert isinstance(root, TyperGroup)
    context = Context(root)
    section = ""
    for name, about in COMMANDS.items():
        if about.section != section:
            section = about.section
            yield from ("", f"**{section}**", "", "| command | |", "|---|---|")
        command = root.get_command(context, name)
        if isinstance(command, TyperGroup):
            for inner in command.list_commands(context):
                found = command.get_command(context, inner)
                assert found is not None
                yield f"| `{name} {inner}` | {_first_sentences(found.help)} |"
        else:
            yield f"| `{name}` | {about.line} |"


def _first_sentences(text: str | None) -> str:
    """Return the first paragraph of a help text, without its remark on JSON."""
    paragraph = (text or "").strip().split("\n\n")[0]
    return " ".join(paragraph.split()).partition(" With --json")[0]


if __name__ == "__main__":
    PAGE.write_text(page_with_table())
