"""Writes the table of docs/settings.md from the model: `python -m tests.docs.settings_table`."""

import re
from collections.abc import Iterator
from typing import Final, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from delayq.settings.connections import ConnectionSettings
from delayq.settings.model import Settings
from delayq.settings.sources import TABLES, variable_of
from delayq.settings.types import unit_of, written
from tests.docs.pages import DOCS

PAGE: Final = DOCS / "settings.md"
_TABLE: Final = re.compile(r"(<!-- settings -->\n).*?(<!-- end -->)", re.S)


def page_with_table() -> str:
    """Return the page as it must be."""
    return _TABLE.sub(lambda marks: marks[1] + "\n".join(_lines()) + "\n" + marks[2], PAGE.read_text())


def _lines() -> Iterator[str]:
    yield "| in the file | variable | value | default | meaning |"
    yield "|---|---|---|---|---|"
    for name, field in Settings.model_fields.items():
        if name not in TABLES:
            key = "–" if name == "config" else f"`{name}`"
            yield f"| {key} | `{variable_of(name)}` | {_kind(field)} | {_default(field)} | {field.description} |"


def _kind(field: FieldInfo) -> str:
    if get_origin(field.annotation) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(field.annotation))
    unit = unit_of(field.metadata)
    assert unit is not None
    return unit.name


def _default(field: FieldInfo) -> str:
    value = written(field.default, unit_of(field.metadata))
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return "–" if value in {None, ""} else f"`{value}`"


def options_of_a_connection() -> set[str]:
    """Return the names that a table [connections.NAME] may hold."""
    return set(ConnectionSettings.model_fields)


if __name__ == "__main__":
    PAGE.write_text(page_with_table())
