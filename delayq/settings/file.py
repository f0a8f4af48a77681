"""The settings file: which one counts, and what it says, with line numbers."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from delayq.core.errors import ConfigError

VARIABLE: Final = "DELAYQ_CONFIG"
_OWN: Final = "delayq.toml"
_SHARED: Final = "pyproject.toml"


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """One file that was read: `values` are those of its table at `table`."""

    path: Path
    values: Mapping[str, Any]
    text: str = ""
    table: tuple[str, ...] = ()

    def place(self, key: str, path: Sequence[str] = ()) -> str:
        """Return 'routes in /srv/shop/delayq.toml, line 3': where the entry at `path` of that setting is written."""
        lines = _lines(self.text)
        wanted = (*self.table, key, *path)
        line = next(lines[wanted[:length]] for length in range(len(wanted), 0, -1) if wanted[:length] in lines)
        return f"{key} in {self.path}, line {line}"


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
    return SettingsFile(path, values, text, ("tool", "delayq") if shared else ())


def _lines(text: str) -> dict[tuple[str, ...], int]:
    """Return the line of each key and table of a TOML text, by its path; inside an inline table, that of the table.

    A statement ends with the first line at which it can be parsed by itself; it may begin with a header.
    """
    found: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    statement, first = "", 1
    for number, line in enumerate(text.split("\n"), start=1):
        statement += line + "\n"
        try:
            parsed = tomllib.loads(statement)
        except tomllib.TOMLDecodeError:
            continue
        paths = list(_paths(parsed))
        if statement.lstrip().startswith("["):
            table = paths[-1]
            paths = [table[:length] for length in range(1, len(table) + 1)]
        else:
            paths = [(*table, *path) for path in paths]
        for path in paths:
            found.setdefault(path, first)
        statement, first = "", number + 1
    return found


def _paths(value: Any) -> Iterator[tuple[str, ...]]:
    """Yield the path of each key in tables inside tables, each table before its keys."""
    if isinstance(value, list):
        value = value[0] if value else None
    if isinstance(value, dict):
        for key, inner in value.items():
            yield (key,)
            yield from ((key, *path) for path in _paths(inner))


def resolve(value: Any, file: SettingsFile) -> Any:
    """A path written in a file means: seen from that file. Anything that is no relative path stays as it is."""
    if not isinstance(value, str) or not value or value.startswith("~") or Path(value).is_absolute():
        return value
    return str(file.path.parent / value)
