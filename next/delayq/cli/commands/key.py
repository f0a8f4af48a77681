"""The command `key new`."""

import typer

from delayq.cli.families import PLAIN
from delayq.cli.options import Json
from delayq.cli.output import print_json, print_text
from delayq.core.encryption import new_key
from delayq.core.json_shapes.setup import KeyShape

key = typer.Typer(help="Keys for encrypted jobs: new.", no_args_is_help=True, **PLAIN)


@key.command("new")
def new(json: Json = False) -> None:
    """Print a new random key for DELAYQ_KEYS or DELAYQ_KEYS_FILE. Nothing is stored, and no server is used.

    delayq key new
    """
    made = new_key()
    if json:
        print_json(KeyShape(made))
    else:
        print_text(made)
