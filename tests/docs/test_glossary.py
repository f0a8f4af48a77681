"""The glossary explains each word once."""

from __future__ import annotations

import re

from tests.docs.pages import page


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
