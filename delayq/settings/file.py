"""The settings file: which one counts, and what it says, with line numbers."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from delayq.core.errors import ConfigError

VARIABLE: Final = "DELAYQ_CONFIG"
_OWN: Final = "delayq.toml"
_SHARED: Final = "pyproject.toml"
_TABLE: Final = re.compile(r"\s*\[\s*([^\[\]]+?)\s*\]\s*(?:#.*)?")
_KEY: Final = re.compile(r"\s*([A-Za-z0-9_\"'.*?:-]+(?:\s*\.\s*[A-Za-z0-9_\"'.*?:-]+)*)\s*=")


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """One file that was read."""

    path: Path
    values: Mapping[str, Any]
    lines: Mapping[str, int] = field(default_factory=dict)
    """Line of each key that stands on a line of its own."""

    def place(self, key: str) -> str:
        """'/srv/shop/delayq.toml, line 3'."""
        line = self.lines.get(key)
        return f"{self.path}, line {line}" if line else str(self.path)


def read_settings_file(environ: Mapping[str, str]) -> SettingsFile | None:
    """The file that counts: `DELAYQ_CONFIG`, else delayq.toml, else pyproject.toml with a [tool.delayq], else none.

    Raises `ConfigError`: cannot be read, is no TOML, or is named by `DELAYQ_CONFIG` and not there.
    """
    if named := environ.get(VARIABLE):
        path = Path(named).expanduser().absolute()
        return _read(path, missing=f"Correct {VARIABLE} or unset it.")
    here = Path.cwd()
    return _read(here / _OWN) or _read(here / _SHARED)


def project_folder(environ: Mapping[str, str]) -> Path | None:
    """The folder of the project that this process works in; None outside of one.

    It is that of the file that `DELAYQ_CONFIG` names; else the nearest one, from the working directory upwards, with a
    delayq.toml or a pyproject.toml. Only their place counts: settings are not read from parent directories.
    """
    if named := environ.get(VARIABLE):
        return Path(named).expanduser().resolve().parent
    here = Path.cwd()
    return next((one for one in (here, *here.parents) if (one / _OWN).is_file() or (one / _SHARED).is_file()), None)


def _read(path: Path, *, missing: str = "") -> SettingsFile | None:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        if missing:
            raise ConfigError(f"The settings file {path} does not exist.", hint=missing) from None
        return None
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(f"The settings file {path} cannot be read: {why}.") from None
    shared = path.name == _SHARED
    if shared and "delayq" not in text:
        return None  # somebody else's file; whether it is good TOML is not our business
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"The settings file {path} is no TOML: {error}.") from None
    if shared:
        values = values.get("tool", {}).get("delayq")
        if not isinstance(values, dict):
            return None
    return SettingsFile(path, values, _lines(text, "tool.delayq" if shared else ""))


def _lines(text: str, table: str) -> dict[str, int]:
    """Where the keys directly in `table` stand, and the tables in it. For messages only: an odd layout has no line."""
    found: dict[str, int] = {}
    inside = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _TABLE.fullmatch(line):
            inside = header[1].replace(" ", "")
            name = inside.removeprefix(f"{table}." if table else "")
            if name != inside or not table:
                found.setdefault(name.partition(".")[0], number)
        elif inside == table and (key := _KEY.match(line)):
            found.setdefault(key[1].partition(".")[0].strip().strip("\"'"), number)
    return found


def resolve(value: Any, file: SettingsFile) -> Any:
    """A path written in a file means: seen from that file. Anything that is no relative path stays as it is."""
    if not isinstance(value, str) or not value or value.startswith("~") or Path(value).is_absolute():
        return value
    return str(file.path.parent / value)
