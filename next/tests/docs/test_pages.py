"""Every program and command of the documentation does what its page says."""

import re
import shlex
import shutil
from pathlib import Path

import pytest
import redis

import delayq
from delayq.core.envelope import Envelope
from delayq.redis.scripts import load, script_names
from tests.docs import acl_lines, api_page, commands_table, script_tables
from tests.docs.pages import DOCS, run_page
from tests.docs.settings_table import PAGE, options_of_a_connection, page_with_table

PAGES = (
    "quickstart",
    "tutorial",
    "jobs",
    "schedule",
    "unique",
    "chains",
    "batches",
    "middleware",
    "limits",
    "events",
    "notifications",
    "transactions",
    "encryption",
    "models",
    "cancel",
    "retries",
    "testing",
    "operations",
    "commands",
    "settings",
)


@pytest.mark.parametrize("page", [*PAGES, "../README"])
def test_a_page_does_what_it_says(project: Path, page: str) -> None:
    run_page(DOCS / f"{page}.md", project)


def test_the_page_of_redis_cli_does_what_it_says(
    url: str, server: redis.Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = shutil.which("redis-cli") or shutil.which("valkey-cli")
    if program is None:
        pytest.skip("redis-cli or valkey-cli is not installed")
    words = shlex.join([program, "-s", url.removeprefix("unix://"), "--no-raw"])
    script = tmp_path / "bin" / "redis-cli"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(script.parent), prepend=":")
    monkeypatch.setenv("DELAYQ_URL", url)
    run_page(DOCS / "redis-cli.md", tmp_path)


def test_links_lead_somewhere() -> None:
    for page in [*DOCS.rglob("*.md"), DOCS.parent / "README.md"]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_page_of_laravel_names_tests_that_exist() -> None:
    rows = [line for line in (DOCS / "laravel.md").read_text().splitlines() if line.startswith("| ")]
    names = [row.strip("| ").split(" | ")[3] for row in rows if not row.startswith("| Laravel |")]
    sources = "".join(path.read_text() for path in (DOCS.parent / "tests").rglob("test_*.py"))
    assert not [name for name in names if name != "–" and f"def {name.strip('`')}(" not in sources]


def test_the_page_of_settings_lists_them_all() -> None:
    assert PAGE.read_text() == page_with_table(), "write it with: python -m tests.docs.settings_table"
    assert not [name for name in options_of_a_connection() if f"`{name}`" not in PAGE.read_text()]


def test_the_page_of_commands_lists_them_all() -> None:
    assert commands_table.PAGE.read_text() == commands_table.page_with_table(), (
        "write it with: python -m tests.docs.commands_table"
    )


def test_the_page_of_the_protocol_lists_all_scripts() -> None:
    assert script_tables.PAGE.read_text() == script_tables.page_with_tables(), (
        "write it with: python -m tests.docs.script_tables"
    )
    assert sorted(name for names in script_tables.SECTIONS.values() for name in names) == script_names()


def test_the_page_of_redis_has_the_acl_lines() -> None:
    assert acl_lines.PAGE.read_text() == acl_lines.page_with_lines(), "write it with: python -m tests.docs.acl_lines"


def test_the_page_of_the_protocol_names_all_keys_and_members() -> None:
    page = script_tables.PAGE.read_text()
    keys = {key for name in script_names() for key in load(name).keys} - {"control", "once", "set"}
    assert not [name for name in (*keys, *Envelope.__struct_fields__) if f"`{name}`" not in page]


def test_the_page_of_the_api_has_every_public_name() -> None:
    written = api_page.PAGE.read_text()
    assert written == api_page.page(), "write it with: python -m tests.docs.api_page"
    assert not [name for name in delayq.__all__ if f"\n### {name}\n" not in written]
    assert not [name for name in vars(delayq.DelayQ) if name[0] != "_" and f"\n#### DelayQ.{name}\n" not in written]
