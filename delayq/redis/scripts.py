"""The Lua files: found, read, and their manuals parsed.

The files are the contract with every other language, so they stay plain files. In a wheel they
lie in `delayq/lua`, in a checkout in `scripts/lua`. The header of each names its keys and
arguments; calls pass keys *by name* and this module puts them in the order the header gives.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

_KEY = re.compile(r"^-- KEYS\[(\d+)\] +(\w+)")
_ARG = re.compile(r"^-- ARGV\[(\d+)(\+?)\] +(\w+)")


@dataclass(frozen=True, slots=True)
class Script:
    """One Lua file: its text and what its manual says it takes."""

    name: str
    text: str
    sha: str
    keys: tuple[str, ...]
    args: tuple[str, ...]
    variadic: str

    def order(self, keys: Mapping[str, str]) -> tuple[str, ...]:
        """The keys in the order of the header; a missing or a surplus one is a mistake of ours."""
        if len(keys) != len(self.keys):
            raise KeyError(f"{self.name}.lua takes the keys {self.keys}, not {tuple(keys)}")
        return tuple(keys[name] for name in self.keys)


def parse(name: str, text: str) -> Script:
    """Read a script's header; `ValueError` when its keys or arguments are not numbered without a gap."""
    keys: list[str] = []
    args: list[str] = []
    variadic = ""
    for line in text.splitlines():
        if not line.startswith("--"):
            break
        if key := _KEY.match(line):
            _expect(name, "KEYS", int(key[1]), len(keys) + 1)
            keys.append(key[2])
        elif arg := _ARG.match(line):
            _expect(name, "ARGV", int(arg[1]), len(args) + 1)
            if arg[2]:
                variadic = arg[3]
            else:
                args.append(arg[3])
    sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
    return Script(name, text, sha, tuple(keys), tuple(args), variadic)


def _expect(name: str, kind: str, found: int, wanted: int) -> None:
    if found != wanted:
        raise ValueError(f"{name}.lua: its manual jumps to {kind}[{found}] where {kind}[{wanted}] should stand")


@cache
def load(name: str) -> Script:
    """The script of that name, read once."""
    return parse(name, folder().joinpath(f"{name}.lua").read_text(encoding="utf-8"))


@cache
def names() -> tuple[str, ...]:
    """The names of all scripts, sorted."""
    files = (Path(str(entry.name)) for entry in folder().iterdir())
    return tuple(sorted(file.stem for file in files if file.suffix == ".lua"))


@cache
def folder() -> resources.abc.Traversable:
    """The directory of the Lua files: inside the installed package, or `scripts/lua` of a checkout."""
    shipped = resources.files("delayq") / "lua"
    if shipped.is_dir():
        return shipped
    return Path(__file__).resolve().parents[2] / "scripts" / "lua"
