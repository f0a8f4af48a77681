"""The READMEs of consumers/: their length and their links."""

import json
import re
from pathlib import Path

import pytest

from tests.consumers.programs import CONSUMERS

READMES = sorted(CONSUMERS.glob("*/README.md"))


def test_each_folder_has_a_readme() -> None:
    folders = {path.name for path in CONSUMERS.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders == {path.parent.name for path in READMES}


@pytest.mark.parametrize("path", READMES, ids=lambda path: path.parent.name)
def test_a_readme_is_short_and_its_links_lead_somewhere(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= 40
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        assert (path.parent / target).exists(), target


def test_the_lock_of_node_names_no_registry() -> None:
    lock = json.loads((CONSUMERS / "node_stream" / "package-lock.json").read_text())
    assert lock["packages"]
    assert not [name for name, package in lock["packages"].items() if "resolved" in package]
