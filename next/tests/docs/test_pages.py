"""Every program and command of the documentation does what its page says."""

import re
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, run_page

PAGES = ("quickstart", "tutorial", "jobs", "schedule", "cancel", "retries")


@pytest.mark.parametrize("page", [*PAGES, "../README"])
def test_a_page_does_what_it_says(project: Path, page: str) -> None:
    run_page(DOCS / f"{page}.md", project)


def test_links_lead_somewhere() -> None:
    for page in [*DOCS.rglob("*.md"), DOCS.parent / "README.md"]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
