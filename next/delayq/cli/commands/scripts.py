"""The command `scripts export`."""

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from delayq.cli.families import PLAIN
from delayq.cli.output import print_text
from delayq.core.errors import InvalidInput
from delayq.redis.scripts import load, script_names

INDEX = "index.json"

scripts = typer.Typer(help="Lua scripts for other languages: export.", no_args_is_help=True, **PLAIN)


@scripts.command("export")
def export(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Target directory; created if needed.", show_default=False)
    ],
    force: Annotated[bool, typer.Option("--force", help="Write even if the directory has other files.")] = False,
) -> None:
    """Write the Lua scripts for programs in other languages.

    delayq scripts export lua/

    DIR then has one file for each script, with a manual at the top, and index.json with the SHA1 of each file and the
    names of its KEYS and ARGV in order.
    """
    loaded = [load(name) for name in script_names()]
    files = {f"{script.name}.lua": script.text for script in loaded}
    index = {
        script.name: {
            "sha1": script.sha,
            "file": f"{script.name}.lua",
            "keys": script.keys,
            "argv": script.arguments,
            "row": script.row,
        }
        for script in loaded
    }
    files[INDEX] = msgspec.json.format(msgspec.json.encode(index), indent=2).decode() + "\n"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        others = sorted(path.name for path in folder.iterdir() if path.name not in files)
        if others and not force:
            raise InvalidInput(
                f"The directory {folder} has other files, such as {others[0]!r}.",
                hint="Name an empty directory, or add --force.",
                field="folder",
            )
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise InvalidInput(
            f"The scripts cannot be written to {folder}: {error.strerror}.", hint="Name another directory."
        ) from None
    print_text(f"{len(loaded)} scripts and {INDEX} written to {folder}")
