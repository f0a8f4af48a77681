"""`delayq key …`: the keys of encrypted payloads."""

from __future__ import annotations

from typing import Annotated

import typer

from delayq.cli.flags import AnyQueue, NdJson, example, session_of

KeyId = Annotated[
    str | None, typer.Option("--id", metavar="ID", help="What the key is called; without it, by the day it was made.")
]


def add_to(app: typer.Typer) -> None:
    """Give `app` the group `key`."""
    key = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
    key.callback(epilog=example("delayq key new"))(_key)
    key.command("new", epilog=example("delayq key new"))(new)
    key.command("list", epilog=example("delayq key list"))(list_keys)
    app.add_typer(key, name="key")


def _key() -> None:
    """Make keys for payloads; see which are in use."""


def new(ctx: typer.Context, key_id: KeyId = None) -> None:
    """Make a key and print it.

    It is written as DELAYQ_KEYS takes it, and nothing keeps it but you. Put it in front of those there are: the first
    one encrypts, all of them decrypt.
    """
    from delayq.cli.actions import keys

    keys.new(session_of(ctx), key_id)


def list_keys(ctx: typer.Context, queue: AnyQueue = None, as_json: NdJson = False) -> None:
    """Show which keys are known, and needed.

    With the number of jobs that each has encrypted: a key that no job needs any more may leave the ring. Looks at every
    job there is.
    """
    from delayq.cli.actions import keys

    keys.list_keys(session_of(ctx), queue, as_json=as_json)
