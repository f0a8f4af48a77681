"""Every `delayq …` line on every page is a command that exists, with options that exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from delayq.cli.root import app
from delayq.cli.session import Session
from tests.docs.manuals import ROOT
from tests.docs.pages import Block, blocks, pages

SHELLS = ("console", "sh", "bash", "")


def commands(block: Block) -> list[str]:
    """The `delayq` commands of a block, comments taken off, lines that go on joined."""
    lines = re.sub(r"\\\n\s*", " ", block.text).splitlines()
    return [line.removeprefix("$ ") for line in lines if re.match(r"(\$ )?delayq( |$)", line)]


ALL = [
    pytest.param(command, id=f"{path.relative_to(ROOT)}-{command[:60]}")
    for path in pages()
    for block in blocks(path.read_text(encoding="utf-8"))
    if block.language in SHELLS
    for command in commands(block)
]


def parse(words: list[str]) -> None:
    """Go down the tree of commands as the command line would, and stop before anything is done."""
    command: Any = typer.main.get_command(app)
    context: Any = None
    name, rest = "delayq", words
    while True:
        context = command.make_context(name, rest, parent=context, obj=Session())
        if not hasattr(command, "commands"):
            return
        left = [*context._protected_args, *context.args]
        if not left and command.invoke_without_command:
            return
        name, command, rest = command.resolve_command(context, left)


@pytest.mark.parametrize("line", ALL)
def test_the_command_and_its_options_exist(line: str) -> None:
    parse(shlex.split(line, comments=True)[1:])


def test_there_are_some() -> None:
    assert len(ALL) >= 6


@pytest.mark.parametrize("line", ["delayq shedule x", "delayq work --fibers 2", "delayq failed lst", "delayq cancel"])
def test_a_wrong_one_is_seen(line: str) -> None:
    with pytest.raises(Exception, match=r"No such|Missing") as refused:
        parse(shlex.split(line)[1:])
    assert refused.type.__name__ in ("UsageError", "NoSuchOption", "MissingParameter", "NoSuchCommand")


def test_lines_are_found_in_blocks() -> None:
    block = Block("console", "", "$ delayq up   # all of it\ndelayq list \\\n    --json\necho delayq\n", 1)
    assert commands(block) == ["delayq up   # all of it", "delayq list  --json"]
    assert Path("README.md") in [path.relative_to(ROOT) for path in pages()]
