"""One version, spelt once; the changelog speaks of the same one."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from packaging.version import Version

import delayq

ROOT = Path(__file__).resolve().parents[2]
ENTRY = re.compile(r"^## \[(?P<version>[^\]]+)\] - (?P<date>Unreleased|\d{4}-\d{2}-\d{2})$", re.MULTILINE)


def entries() -> list[tuple[str, str]]:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    return [(match["version"], match["date"]) for match in ENTRY.finditer(text)]


def test_the_changelog_opens_with_this_version() -> None:
    assert entries()[0][0] == delayq.__version__


def test_every_entry_of_the_changelog_has_a_version_and_a_date() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert len(entries()) == len(re.findall(r"^## ", text, re.MULTILINE))


def test_versions_fall_and_only_the_newest_may_be_unreleased() -> None:
    versions = [Version(version) for version, _ in entries()]
    assert versions == sorted(set(versions), reverse=True)
    assert "Unreleased" not in [date for _, date in entries()[1:]]


def test_the_build_reads_the_version_from_the_package() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        data = tomllib.load(file)
    assert "version" not in data["project"]
    assert data["tool"]["hatch"]["version"]["path"] == "delayq/__init__.py"
