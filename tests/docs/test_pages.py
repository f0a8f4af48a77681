"""What holds for every page: links lead somewhere, what is cited exists, lines fit a screen."""

from __future__ import annotations

import re
import shlex
from itertools import pairwise
from pathlib import Path

import pytest

from delayq.settings import Settings
from delayq.settings.sources import PREFIX, setting_names
from tests.docs.manuals import ROOT, SCRIPTS
from tests.docs.pages import anchors, blocks, links, page, pages

EACH_PAGE = pytest.mark.parametrize("path", pages(), ids=lambda path: str(path.relative_to(ROOT)))
# Variables that are no settings: where the settings file is, what the suite reads, the example of origins.
OTHER_VARIABLES = {"DELAYQ_CONFIG", "DELAYQ_CHAOS"}


@EACH_PAGE
def test_links_lead_somewhere(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for link in links(text):
        if link.startswith(("https://", "http://")):
            continue
        name, _, fragment = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        assert target.exists(), link
        if fragment:
            assert fragment in anchors(target.read_text(encoding="utf-8")), link


@EACH_PAGE
def test_lines_fit_a_screen(path: Path) -> None:
    long = [n for n, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1) if len(line) > 120]
    assert long == []


@EACH_PAGE
def test_what_is_cited_exists(path: Path) -> None:
    """Files and folders of the repository, named from its root, in backquotes or in a command."""
    cited = re.findall(
        r"(?<![\w./-])((?:tests|delayq|scripts|consumers|docs|benchmarks)/[\w./*-]*\w)", path.read_text()
    )
    missing = [name for name in cited if not (ROOT / name).exists() and not list(ROOT.glob(name))]
    assert missing == []


@EACH_PAGE
def test_variables_are_settings(path: Path) -> None:
    known = {PREFIX + name.upper() for name in setting_names(Settings)} | OTHER_VARIABLES
    said = set(re.findall(r"\bDELAYQ_[A-Z_]*[A-Z]", path.read_text(encoding="utf-8")))
    assert {name for name in said if not name.startswith("DELAYQ_TEST")} <= known


def test_the_benchmarks_that_are_cited_exist() -> None:
    measures = {path.stem for path in (ROOT / "benchmarks" / "measures").glob("*.py")}
    if not measures:
        pytest.skip("this checkout has no benchmarks")
    for path in pages():
        for block in blocks(path.read_text(encoding="utf-8")):
            for line in re.findall(r"^make bench ARGS='([^']*)'", block.text, re.MULTILINE):
                words = shlex.split(line)
                assert {after for word, after in pairwise(words) if word == "--only"} <= measures


def test_the_tests_that_are_cited_are_collected_by_name() -> None:
    """`make test ARGS='tests/lua/test_ack.py -k full'`: the words after the paths are pytest's own."""
    for path in pages():
        for line in re.findall(r"make test ARGS='([^']*)'", path.read_text(encoding="utf-8")):
            rest = [word for word in shlex.split(line) if not word.startswith("tests/")]
            assert rest in ([], ["-k", "full"], ["-k", "reclaim", "-x"]), line


def test_the_manual_that_the_scripts_page_shows_is_the_file_s() -> None:
    [shown] = [block for block in blocks(page("scripts/lua/README.md")) if block.text.startswith("-- ")]
    manual = (SCRIPTS / "ack.lua").read_text(encoding="utf-8").splitlines()
    lines = [line for line in shown.text.splitlines() if "…" not in line]
    assert len(lines) > 6
    assert [line for line in lines if line not in manual] == []


def test_a_stray_citation_is_seen(tmp_path: Path) -> None:
    stray = tmp_path / "page.md"
    stray.write_text("see `tests/lua/test_nothing.py` and DELAYQ_LEESE\n")
    with pytest.raises(AssertionError):
        test_what_is_cited_exists(stray)
    with pytest.raises(AssertionError):
        test_variables_are_settings(stray)
