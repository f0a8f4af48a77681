"""docs/laravel.md: every row has a test, every test that is named exists, every link is used."""

from __future__ import annotations

import ast
import re

from tests.docs.manuals import ROOT
from tests.docs.pages import page

PAGE = page("docs/laravel.md")
LINKS = dict(re.findall(r'^\[([a-z-]+)\]: \.\./(tests/\S+\.py "::test_\w+")$', PAGE, re.MULTILINE))
ROWS = [line.strip("| ").split(" | ") for line in PAGE.splitlines() if line.startswith("| ")]
FEATURES = [row for row in ROWS if row != ["Laravel", "delayq", "tests"]]


def names_in(file: str) -> set[str]:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return {node.name for node in functions if node.name.startswith("test_")}


def test_every_row_has_a_test_or_says_why_it_is_not_there_yet() -> None:
    assert len(FEATURES) > 80
    for row in FEATURES:
        assert len(row) == 3, row
        labels = re.findall(r"\[([a-z-]+)\]", row[2])
        assert labels or (row[2] == "—" and row[1].startswith("not yet: ")), row
        assert set(labels) <= LINKS.keys(), row


def test_every_test_that_is_linked_exists() -> None:
    for label, target in LINKS.items():
        file, _, name = target.replace('"', "").partition(" ::")
        assert name in names_in(file), f"[{label}] names {file}::{name}"


def test_every_link_is_used_and_written_as_the_others() -> None:
    said = {label for row in FEATURES for label in re.findall(r"\[([a-z-]+)\]", row[2])}
    assert said == LINKS.keys()
    assert len(LINKS) == PAGE.count("]: ../")
