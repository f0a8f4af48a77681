"""`delayq api-key …`: the keys of the HTTP API."""

from __future__ import annotations

from typing import Annotated

import typer

from delayq.cli.flags import Json, NdJson, example, rate, session_of

Scopes = Annotated[
    list[str] | None,
    typer.Option("--scope", metavar="read|write|admin", help="What it is good for; may be repeated. Default: write."),
]
Queues = Annotated[
    list[str] | None,
    typer.Option(
        "--queue",
        metavar="Q",
        help="A queue it is for, or a pattern such as 'orders.*'; may be repeated. Without: all of them.",
    ),
]
Label = Annotated[str, typer.Option("--label", metavar="TEXT", help="Who has it, for lists and the audit log.")]
Most = Annotated[
    str | None, typer.Option("--rate", metavar="N/s|N/m|N/h", help="How often it may call a server.", callback=rate)
]
NewQueues = Annotated[
    int | None,
    typer.Option(
        "--new-queues",
        metavar="N",
        help="How many queues it may make that did not exist; 0 = none. Without: any number.",
        show_default=False,
    ),
]
KeyId = Annotated[str, typer.Argument(metavar="ID", help="What stands between dq_ and the second _.")]


def add_to(app: typer.Typer) -> None:
    """Give `app` the group `api-key`."""
    keys = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
    keys.callback(epilog=example("delayq api-key create --label billing"))(_keys)
    keys.command(
        "create",
        epilog=example(
            "delayq api-key create --label billing --scope write --queue orders --rate 100/s",
            "delayq api-key create --queue 'orders.*' --new-queues 10",
            "delayq --api-keys-file /run/secrets/delayq-api-keys api-key create --scope read",
        ),
    )(create)
    keys.command("list", epilog=example("delayq api-key list"))(list_keys)
    keys.command("revoke", epilog=example("delayq api-key revoke k3v9qtl2"))(revoke)
    app.add_typer(keys, name="api-key")


def _keys() -> None:
    """Make, list and revoke API keys."""


def create(
    ctx: typer.Context,
    scope: Scopes = None,
    queue: Queues = None,
    label: Label = "",
    rate: Most = None,
    new_queues: NewQueues = None,
    as_json: Json = False,
) -> None:
    """Make an API key and print it.

    This is the only time it is shown: the file keeps a hash of it.
    """
    from delayq.cli.actions import api_keys

    wanted = api_keys.Wanted(tuple(scope or ["write"]), tuple(queue or ()), label, rate or "", new_queues)
    api_keys.create(session_of(ctx), wanted, as_json=as_json)


def list_keys(ctx: typer.Context, as_json: NdJson = False) -> None:
    """Show the API keys, without what is secret."""
    from delayq.cli.actions import api_keys

    api_keys.list_keys(session_of(ctx), as_json=as_json)


def revoke(ctx: typer.Context, key_id: KeyId, as_json: Json = False) -> None:
    """Let an API key open nothing any more.

    A running server knows after a second.
    """
    from delayq.cli.actions import api_keys

    api_keys.revoke(session_of(ctx), key_id, as_json=as_json)
