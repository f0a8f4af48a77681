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
        name, command, rest = command.resolve_command(context, [*context._protected_args, *context.args])


@pytest.mark.parametrize("line", ALL)
def test_the_command_and_its_options_exist(line: str) -> None:
    parse(shlex.split(line, comments=True)[1:])


def inline(text: str) -> list[str]:
    """The `delayq …` commands inside sentences; not whole: names stand in them for values, bars between choices."""
    sentences = re.sub(r"^ *```.*?^ *```$", "", text, flags=re.MULTILINE | re.DOTALL)
    return [" ".join(found.split()) for found in re.findall(r"`(delayq [^`]+)`", sentences)]


def strangers(line: str) -> list[str]:
    """Its options that the command they stand behind does not have."""
    command: Any = typer.main.get_command(app)
    found = []
    for word in line.split()[1:]:
        if word.startswith("--"):
            known = {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
            found += [] if re.split(r"[=,.|]", word)[0] in {*known, "--help"} else [word]
        else:
            command = getattr(command, "commands", {}).get(word.split("|")[0], command)
    return found


def test_options_inside_sentences_stand_where_they_may() -> None:
    lines = [line for path in pages() for line in inline(path.read_text(encoding="utf-8"))]
    assert len(lines) > 100, "there are some"
    assert [line for line in lines if strangers(line)] == []


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("delayq lock list|show --connection NAME", ["--connection"]),
        ("delayq --connection NAME lock list|show", []),
        ("delayq work --connection NAME --fibers", ["--fibers"]),
    ],
)
def test_an_option_in_a_wrong_place_is_seen(line: str, wrong: list[str]) -> None:
    assert strangers(line) == wrong


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
