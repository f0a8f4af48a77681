"""uv.lock was made from this pyproject.toml, and names the public index only."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PUBLIC_HOSTS = {"pypi.org", "files.pythonhosted.org"}
NEXT_STEP = "run: .venv/bin/uv lock --default-index https://pypi.org/simple"

Wanted = set[tuple[str, str, str]]


def read(name: str) -> dict[str, Any]:
    with (ROOT / name).open("rb") as file:
        return tomllib.load(file)


def wanted(requirements: list[str], group: str, extras: dict[str, list[str]]) -> Wanted:
    """(group, package, version bounds) of each requirement; `delayq[demo]` stands for what that extra asks for."""
    found = set()
    for row in map(Requirement, requirements):
        if row.name == "delayq":
            found |= {item for extra in row.extras for item in wanted(extras[extra], group, extras)}
        else:
            found.add((group, canonicalize_name(row.name), str(row.specifier)))
    return found


def from_pyproject() -> Wanted:
    data = read("pyproject.toml")
    extras = data["project"]["optional-dependencies"]
    found = wanted(data["project"]["dependencies"], "", extras)
    for extra, rows in extras.items():
        found |= wanted(rows, extra, extras)
    for group, rows in data["dependency-groups"].items():
        found |= wanted(rows, f"group {group}", extras)
    return found


def from_lock() -> Wanted:
    entry = next(package for package in read("uv.lock")["package"] if package["name"] == "delayq")
    metadata = entry["metadata"]
    found = set()
    for row in metadata["requires-dist"]:
        extra = re.search(r"extra == '([^']+)'", row.get("marker", ""))
        bounds = str(Requirement(f"x{row.get('specifier', '')}").specifier)
        found.add((extra[1] if extra else "", row["name"], bounds))
    for group, rows in metadata["requires-dev"].items():
        found |= {(f"group {group}", row["name"], str(Requirement(f"x{row['specifier']}").specifier)) for row in rows}
    return found


def test_the_lock_follows_pyproject() -> None:
    assert from_lock() == from_pyproject(), NEXT_STEP


def test_the_lock_names_the_public_index_only() -> None:
    text = (ROOT / "uv.lock").read_text(encoding="utf-8")
    hosts = {urlsplit(url).hostname for url in re.findall(r"[a-z+]+://[^\s\"']+", text)}
    assert hosts <= PUBLIC_HOSTS, NEXT_STEP
    assert "file:" not in text
