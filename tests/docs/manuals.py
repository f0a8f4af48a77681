"""The manuals at the top of the Lua files, read a second time: by this module, not by the one that sends them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "scripts" / "lua"

_FIELD = re.compile(r"(moves|returns|cost|KEYS\[\d+\]|ARGV\[\d+\+?\]) +(.*)")
_COLUMNS = re.compile(r"(\w+) +(\S+|\d+ each) *(.*)")


@dataclass(frozen=True, slots=True)
class Line:
    """One key or argument: its name, its type ('4 each' for the repeated ones) and what is said of it."""

    name: str
    type: str
    said: str


@dataclass(frozen=True, slots=True)
class Manual:
    """One script's manual."""

    name: str
    purpose: str
    moves: str
    keys: tuple[Line, ...]
    args: tuple[Line, ...]
    repeats: bool
    returns: str
    cost: str


def read(path: Path) -> Manual:
    """The manual of one file; raises ValueError for a line that is none of a manual's."""
    lines = [line[2:] for line in _header(path.read_text(encoding="utf-8"))]
    blank = lines.index("")
    purpose = " ".join(line.strip() for line in lines[:blank])
    name, _, purpose = purpose.partition(": ")
    fields = _fields(lines[blank + 1 :])
    keys = [_columns(said) for label, said in fields if label.startswith("KEYS")]
    args = [_columns(said) for label, said in fields if label.startswith("ARGV")]
    said = dict(fields)
    repeats = any(label.endswith("+]") for label, _ in fields)
    if name != path.stem:
        raise ValueError(f"{path.name} says that it is {name}")
    return Manual(name, purpose, said["moves"], tuple(keys), tuple(args), repeats, said["returns"], said["cost"])


def read_all() -> list[Manual]:
    """Every script's, by name."""
    return [read(path) for path in sorted(SCRIPTS.glob("*.lua"))]


def _header(text: str) -> list[str]:
    lines = text.splitlines()
    return lines[: next(n for n, line in enumerate(lines) if not line.startswith("--"))]


def _fields(lines: list[str]) -> list[tuple[str, str]]:
    """Label and text; lines that are indented further go on with the one before. Ends at the first empty line."""
    fields: list[tuple[str, str]] = []
    for line in lines:
        if not line.strip():
            break
        if found := _FIELD.match(line.strip()):
            fields.append((found[1], found[2]))
        elif line.startswith("   ") and fields:
            label, said = fields[-1]
            fields[-1] = (label, f"{said} {line.strip()}")
        else:
            raise ValueError(f"this line of a manual has no label: {line!r}")
    return fields


def _columns(said: str) -> Line:
    found = _COLUMNS.match(said)
    if found is None:
        raise ValueError(f"a key or an argument needs a name and a type: {said!r}")
    name, kind, rest = found[1], found[2], found[3]
    if rest.startswith("each"):
        kind, rest = f"{kind} each", rest[len("each") :].strip()
    return Line(name, kind, rest)
