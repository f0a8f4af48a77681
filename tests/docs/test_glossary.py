"""One word per thing: what the glossary rules out does not occur in the package or the scripts."""

from __future__ import annotations

import re

import pytest

from tests.docs.manuals import ROOT, SCRIPTS
from tests.docs.pages import page

# Where a ruled-out word means something else, and the sign of a module that may use it: asyncio has tasks, and keys of
# the API are revoked.
OTHERWISE = {"task": "async", "revoke": "API key"}


def ruled_out() -> list[str]:
    cells = [line.split("|")[3] for line in page("docs/glossary.md").splitlines() if line.startswith("| *")]
    return [word.strip() for cell in cells for word in cell.split(",") if word.strip()]


def words_in(text: str, word: str) -> list[str]:
    """Lines in which the word stands, also as a part of an identifier, in the plural or inflected."""
    form = re.compile(rf"(?<![a-z]){word}(?:s|d|ed|es|ing|r|er)?(?![a-z])", re.IGNORECASE)
    if word in OTHERWISE and OTHERWISE[word] in text:
        return []
    return [line.strip() for line in text.splitlines() if form.search(line)]


@pytest.mark.parametrize("word", ruled_out())
def test_ruled_out_words_do_not_occur(word: str) -> None:
    files = [*(ROOT / "delayq").rglob("*.py"), *SCRIPTS.rglob("*.lua")]
    found = [(path.name, line) for path in files for line in words_in(path.read_text(encoding="utf-8"), word)]
    assert found == []


def test_there_are_words_to_look_for() -> None:
    assert {"task", "enqueue", "visibility"} <= set(ruled_out())


def test_a_ruled_out_word_is_seen() -> None:
    assert words_in("def _requeue_all(self):", "requeue") == ["def _requeue_all(self):"]
    assert words_in("every enqueued job", "enqueue") == ["every enqueued job"]
    assert words_in("import asyncio\n# shared between tasks", "task") == []
    assert words_in("every task is done", "task") == ["every task is done"]
    assert words_in("a theta value", "eta") == []


def test_every_word_stands_in_the_glossary_once() -> None:
    words = [
        re.findall(r"\*([^*]+)\*", line)[0] for line in page("docs/glossary.md").splitlines() if line.startswith("| *")
    ]
    assert len(words) == len(set(words))
    assert {
        "job",
        "envelope",
        "delivery",
        "entry",
        "lease",
        "due",
        "attempt",
        "promote",
        "settle",
        "reclaim",
        "hand back",
    } <= set(words)
