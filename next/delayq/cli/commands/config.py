"""The command `config show`."""

from collections.abc import Iterator
from typing import Annotated, Any

import typer
from pydantic import BaseModel

from delayq.cli.families import PLAIN
from delayq.cli.options import Json
from delayq.cli.output import print_json, print_text
from delayq.cli.session import session_of
from delayq.core.json_shapes.setup import SettingOriginShape, SettingShape
from delayq.settings.model import origins_of
from delayq.settings.sources import find_file
from delayq.settings.types import unit_of, written

config = typer.Typer(help="Settings in effect: show.", no_args_is_help=True, **PLAIN)


@config.command("show")
def show(
    context: typer.Context,
    with_origin: Annotated[bool, typer.Option("--origin", help="Also show where each value comes from.")] = False,
    json: Json = False,
) -> None:
    """Show all settings in effect. Passwords are masked. With --json, print one line for each setting.

    delayq config show --origin
    """
    session = session_of(context)
    settings = session.settings
    origins = origins_of(settings, session.given)
    rows = dict(_rows_of(settings))
    rows["config"] = str(find_file(settings.config) or "")
    if json:
        for name, value in rows.items():
            origin = origins[_setting_of(name, settings.connection)]
            said = None if value == "" else value
            if with_origin:
                print_json(SettingOriginShape(name, said, origin.source, origin.place or None))
            else:
                print_json(SettingShape(name, said))
        return
    texts = {name: "" if value is None else str(value) for name, value in rows.items()}
    name_width, value_width = max(map(len, texts)), max(map(len, texts.values()))
    for name, text in texts.items():
        origin_text = str(origins[_setting_of(name, settings.connection)]) if with_origin else ""
        print_text(f"{name:<{name_width}}  {text:<{value_width}}  {origin_text}".rstrip())


def _rows_of(model: BaseModel, table: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each name and value as a person would write it. In a table, the name starts with the table name."""
    for name, field in type(model).model_fields.items():
        value = getattr(model, name)
        if isinstance(value, dict):
            for key, inner in value.items():
                yield from _rows_of(inner, f"{name}.{key}.")
        elif not table or value is not None:
            yield table + name, written(value, unit_of(field.metadata))


def _setting_of(row: str, connection: str) -> str:
    """Return the name of the setting whose origin is shown in a row.

    In the table of the default connection, the rows `url`, `prefix` and `queue` have the origins of the settings with
    these names. Every other row has the origin of its first part.
    """
    inner = row.removeprefix(f"connections.{connection}.")
    return inner if inner in ("url", "prefix", "queue") else row.partition(".")[0]
