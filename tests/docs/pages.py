"""Markdown, as far as tests need it: sections, tables and fenced blocks. Links too."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tests.docs.manuals import ROOT

_FENCE = re.compile(r"^( *)```([a-z]*)([^\n]*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_CODE = re.compile(r"`([^`]+)`")


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block: its language and what stands behind it on the same line, its text, the line it begins in."""

    language: str
    mark: str
    text: str
    line: int


def page(name: str) -> str:
    """A page of the repository."""
    return (ROOT / name).read_text(encoding="utf-8")


def pages() -> list[Path]:
    """All pages that people read; none of what tools leave lying about."""
    folders = ("docs", "consumers", "scripts", "benchmarks")
    found = [*ROOT.glob("*.md"), *(path for folder in folders for path in (ROOT / folder).rglob("*.md"))]
    return sorted(path for path in found if "node_modules" not in path.parts)


def blocks(text: str) -> list[Block]:
    """All fenced blocks, in order."""
    return [
        Block(found[2], found[3].strip(), _dedent(found[4], len(found[1])), text.count("\n", 0, found.start()) + 1)
        for found in _FENCE.finditer(text)
    ]


def section(text: str, title: str) -> str:
    """What stands under a heading, without the next heading of its level or above. ValueError when it is not there."""
    found = re.search(rf"^(#+) (?:\d+\. )?{re.escape(title)}$", text, re.MULTILINE)
    if found is None:
        raise ValueError(f"no heading {title!r}")
    rest = text[found.end() :]
    end = re.search(rf"^#{{1,{len(found[1])}}} ", rest, re.MULTILINE)
    return rest[: end.start()] if end else rest


def rows(text: str, header: str) -> list[list[str]]:
    """The cells of the table whose first column is headed so; ValueError when there is none."""
    lines = text.splitlines()
    for n, line in enumerate(lines):
        if line.startswith(f"| {header} |"):
            table = []
            for row in lines[n + 2 :]:
                if not row.startswith("|"):
                    break
                table.append([cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]])
            return table
    raise ValueError(f"no table headed {header!r}")


def names(cell: str) -> list[str]:
    """What stands in backquotes."""
    return _CODE.findall(cell)


def links(text: str) -> list[str]:
    """Where its links lead, blocks left out."""
    return _LINK.findall(_FENCE.sub("", text))


def anchors(text: str) -> set[str]:
    """The fragments that its headings answer to, made as the usual forges make them."""
    titles = re.findall(r"^#+ (.+)$", _FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def _dedent(text: str, width: int) -> str:
    return "".join(line[width:] if line[:width].isspace() else line for line in text.splitlines(keepends=True))
