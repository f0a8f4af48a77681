"""docs/guarantees.md and docs/incidents.md: each promise and each incident leads to a test that is there."""

from __future__ import annotations

import ast
import re

import pytest

from tests.chaos.catalogue import SCENARIOS
from tests.docs.manuals import ROOT
from tests.docs.pages import page

PAGES = ("docs/guarantees.md", "docs/incidents.md")
PROMISES = [f"P{n}" for n in range(1, 31)]
INCIDENTS = [
    f"{letter}{n}" for letter, last in zip("ABCDE", (17, 21, 20, 15, 10), strict=True) for n in range(1, last + 1)
]


def targets(name: str) -> dict[str, tuple[str, str]]:
    """Label -> file and function of each link at the foot of a page."""
    found = re.findall(r'^\[([\w-]+)\]: \.\./(\S+\.py)\s+"::(\w+)"$', page(name), re.MULTILINE)
    return {label: (file, function) for label, file, function in found}


def items(name: str) -> dict[str, str]:
    """What is said under each number."""
    text = re.sub(r"\n  (?=\S)", " ", page(name))
    return dict(re.findall(r"^\* \*\*([A-Z]\d+)\*\* (.*)$", text, re.MULTILINE))


@pytest.mark.parametrize("name", PAGES)
def test_every_test_that_is_linked_exists(name: str) -> None:
    for label, (file, function) in targets(name).items():
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        there = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        assert function in there, f"[{label}] names {file}::{function}"


@pytest.mark.parametrize(("name", "expected"), [(PAGES[0], PROMISES), (PAGES[1], INCIDENTS)])
def test_each_is_there_with_a_test(name: str, expected: list[str]) -> None:
    found, known = items(name), targets(name)
    assert list(found) == expected
    for number, text in found.items():
        labels = re.findall(r"\[([a-z]\d+(?:-[a-z])?)\]", text)
        assert labels, number
        assert set(labels) <= known.keys(), number


def test_each_promise_is_shown_by_a_command() -> None:
    """One of a scenario has the seed that it was last played with."""
    for number, text in items(PAGES[0]).items():
        commands = re.findall(r"`((?:DELAYQ_CHAOS=full )?make (\w+) ARGS='([^']+)')`", text)
        assert commands, number
        for _, word, words in commands:
            assert word in ("chaos", "bench", "test"), number
            assert word != "chaos" or re.fullmatch(r"\S+ --seed \d+", words), number
            assert word != "test" or all((ROOT / one).exists() for one in words.split() if "/" in one), number


@pytest.mark.parametrize("name", PAGES)
def test_every_link_is_used(name: str) -> None:
    said = set(re.findall(r"\[([a-z]\d+(?:-[a-z])?)\](?!:)", page(name)))
    assert said == targets(name).keys()
    assert len(targets(name)) == len(re.findall(r"^\[[\w-]+\]: ", page(name), re.MULTILINE))


@pytest.mark.parametrize("name", PAGES)
def test_a_scenario_that_is_linked_is_in_the_catalogue(name: str) -> None:
    """Linked by the function that plays it."""
    plays = {one.play.__name__ for one in SCENARIOS.values()}
    linked = {function for file, function in targets(name).values() if file.startswith("tests/chaos/scenarios/")}
    assert linked <= plays


@pytest.mark.parametrize("name", PAGES)
def test_a_command_that_is_given_plays_something(name: str) -> None:
    given = {word for words in re.findall(r"make\s+chaos ARGS='([^']+)'", page(name)) for word in words.split()[:1]}
    assert given - {"…"} <= SCENARIOS.keys()


def test_a_scenario_promises_what_is_promised() -> None:
    for one in SCENARIOS.values():
        assert set(one.promises) <= set(PROMISES), one.name
