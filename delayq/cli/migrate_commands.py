"""`delayq migrate`: waiting jobs from one connection to another."""

from __future__ import annotations

from typing import Annotated

import typer

from delayq.cli.flags import Json, example, session_of

From = Annotated[str, typer.Option("--from", metavar="NAME", help="The connection whose jobs shall leave.")]
To = Annotated[str, typer.Option("--to", metavar="NAME", help="The connection they go to.")]
OneQueue = Annotated[str | None, typer.Option("--queue", metavar="Q", help="This queue alone; else all of them.")]
ToQueue = Annotated[str | None, typer.Option("--to-queue", metavar="Q", help="Its name there, if it is another.")]
Resend = Annotated[
    bool, typer.Option("--resend", help="Also what an older or another run left aside; it may run twice.")
]


def add_to(app: typer.Typer) -> None:
    """Give `app` the command."""
    app.command("migrate", epilog=example("delayq migrate --from laravel --to default --queue emails"))(migrate)


def migrate(
    ctx: typer.Context,
    source: From,
    target: To,
    queue: OneQueue = None,
    to_queue: ToQueue = None,
    resend: Resend = False,
    as_json: Json = False,
) -> None:
    """Move waiting jobs to another connection.

    Both stay in use meanwhile. Jobs keep their ids and their times; what runs ends where it is. A run that was
    interrupted is taken up by the next one with the same names. Exit code 4: some jobs could not be moved and wait
    where they did.
    """
    from delayq.cli.actions import migrate as action

    move = action.Move(source, target, queue, to_queue, resend)
    raise typer.Exit(action.migrate(session_of(ctx), move, as_json=as_json))
