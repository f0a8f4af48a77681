"""docs/tutorial.md shows the programs of tests/tutorial, all of them, as they are."""

from __future__ import annotations

import ast

from tests.docs.pages import page
from tests.docs.tutorial import FOLDER, program, rewritten, shown

PAGE = page("docs/tutorial.md")


def test_every_program_is_shown_as_it_is() -> None:
    files = {path.name for path in FOLDER.glob("test_*.py")}
    assert len(files) >= 6
    assert shown(PAGE) == {name: program(name) for name in files}, "write it anew: python -m tests.docs.tutorial"


def test_a_program_that_differs_is_seen_and_written_anew() -> None:
    stale = PAGE.replace('delay="15m"', 'delay="16m"')
    assert stale != PAGE
    assert shown(stale) != shown(PAGE)
    assert rewritten(stale) == PAGE


def test_a_program_needs_no_fixture_but_those_the_page_names() -> None:
    asked = {
        argument.arg
        for path in FOLDER.glob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
        for argument in node.args.args
    }
    assert asked <= {"delayq_travel", "delayq_fake", "monkeypatch", "tmp_path"}
    assert {name for name in asked if name.startswith("delayq_")} == {"delayq_travel", "delayq_fake"}
