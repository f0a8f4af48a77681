"""ARCHITECTURE.md names every module of the package, and no module that is not there."""

from __future__ import annotations

import re
import tomllib

from tests.docs.manuals import ROOT
from tests.docs.pages import page, section

PAGE = page("ARCHITECTURE.md")
# Heading and the folder whose modules its section names.
FOLDERS = {
    "core: what is true": "core",
    "redis: the engine": "redis",
    "drivers: backends behind one protocol": "drivers",
    "loops: what runs for ever": "loops",
    "jobs: what users write": "jobs",
    "contrib: bridges to other libraries": "contrib",
    "testing: for the tests of others": "testing",
    "http: the HTTP door": "http",
    "push: queues that are posted to a URL": "push",
    "metrics: for Prometheus": "metrics",
    "worker: a parent without user code, children that do nothing else": "worker",
}
DOORS = ("settings", "cli", ".")
ROOMS = ("app",)
"""Doors whose modules are named with their folder."""


def modules(folder: str) -> set[str]:
    """Names of the modules below a folder of the package, by path from there; packages' own files left out."""
    top = ROOT / "delayq" / folder
    found = top.glob("*.py") if folder == "." else top.rglob("*.py")
    return {str(path.relative_to(top)) for path in found if path.name != "__init__.py"}


def named(text: str) -> set[str]:
    return set(re.findall(r"`([\w/]+\.py)`", text))


def test_each_section_names_the_modules_of_its_folder() -> None:
    for heading, folder in FOLDERS.items():
        elsewhere = {"drivers/base.py"} if folder == "loops" else set()
        assert named(section(PAGE, heading)) - elsewhere == modules(folder), heading


def test_the_section_of_the_doors_names_theirs() -> None:
    said = named(section(PAGE, "settings, app, client, cli: the doors"))
    wanted = {name.removeprefix("actions/") for folder in DOORS for name in modules(folder)}
    assert said == wanted | {f"{folder}/{name}" for folder in ROOMS for name in modules(folder)}


def test_every_folder_of_the_package_has_a_section() -> None:
    folders = {path.parent.name for path in (ROOT / "delayq").glob("*/__init__.py")}
    assert folders == set(FOLDERS.values()) | {"settings", "cli", *ROOMS}


def test_the_arrows_are_those_of_the_linter() -> None:
    contracts = tomllib.loads(page("pyproject.toml"))["tool"]["importlinter"]["contracts"]
    [layers] = [contract["layers"] for contract in contracts if contract["type"] == "layers"]
    shown = re.search(r"^ (__main__ -> [^`]*)", PAGE, re.MULTILINE)
    assert shown is not None
    assert [floor.strip() for floor in shown[1].split("->")] == [re.sub(r"[()]", "", floor) for floor in layers]
