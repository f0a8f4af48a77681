"""Every program and command of the documentation does what its page says."""

import re
from pathlib import Path

import pytest

from tests.docs import commands_table
from tests.docs.pages import DOCS, run_page
from tests.docs.settings_table import PAGE, options_of_a_connection, page_with_table

PAGES = ("quickstart", "tutorial", "jobs", "schedule", "cancel", "retries", "operations", "commands", "settings")


@pytest.mark.parametrize("page", [*PAGES, "../README"])
def test_a_page_does_what_it_says(project: Path, page: str) -> None:
    run_page(DOCS / f"{page}.md", project)


def test_links_lead_somewhere() -> None:
    for page in [*DOCS.rglob("*.md"), DOCS.parent / "README.md"]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_page_of_settings_lists_them_all() -> None:
    assert PAGE.read_text() == page_with_table(), "write it with: python -m tests.docs.settings_table"
    assert not [name for name in options_of_a_connection() if f"`{name}`" not in PAGE.read_text()]


def test_the_page_of_commands_lists_them_all() -> None:
    assert commands_table.PAGE.read_text() == commands_table.page_with_table(), (
        "write it with: python -m tests.docs.commands_table"
    )
