"""`delayq relay` and `delayq outbox …`: jobs that applications write in their own database transactions."""

from __future__ import annotations

from typing import Annotated

import typer

from delayq.cli.flags import Dialect, NdJson, Yes, duration, example, session_of

DatabaseUrl = Annotated[
    str | None,
    typer.Option("--database", metavar="URL", help="The database; DELAYQ_DATABASE keeps its password out of `ps`."),
]
TableName = Annotated[
    str | None, typer.Option("--table", metavar="T", help="Its table, SCHEMA.T in another schema; else delayq_outbox.")
]
Once = Annotated[bool, typer.Option("--once", help="Send what is there, and leave.")]
Every = Annotated[
    str, typer.Option("--every", metavar="D", help="How long to wait between two looks.", callback=duration)
]
Lines = Annotated[bool, typer.Option("--json", help="A line every ten seconds: sent, waiting, oldest_ms, refused.")]
Limit = Annotated[int, typer.Option("--limit", metavar="N", min=1, help="At most so many.")]
Numbers = Annotated[list[int] | None, typer.Argument(metavar="[SEQ]...", help="Rows, as `outbox list` numbers them.")]
All = Annotated[bool, typer.Option("--all", help="All rows that were set aside.")]


def add_to(app: typer.Typer) -> None:
    """Give `app` the relay and the group `outbox`."""
    app.command("relay", epilog=example("delayq relay --database postgresql://shop@localhost/shop"))(relay)
    outbox = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
    outbox.callback(epilog=example("delayq outbox list"))(_outbox)
    outbox.command("sql", epilog=example("delayq outbox sql sqlite | sqlite3 shop.db"))(sql)
    outbox.command("list", epilog=example("delayq outbox list --json"))(list_refused)
    outbox.command("retry", epilog=example("delayq outbox retry 17 18", "delayq outbox retry --all"))(retry)
    outbox.command("forget", epilog=example("delayq outbox forget 17 --yes"))(forget)
    app.add_typer(outbox, name="outbox")


def _outbox() -> None:
    """Look after the table of an outbox."""


def relay(
    ctx: typer.Context,
    database: DatabaseUrl = None,
    table: TableName = None,
    once: Once = False,
    every: Every = "500ms",
    as_json: Lines = False,
) -> None:
    """Send what applications wrote to their outbox.

    Each committed row becomes one job, whatever dies meanwhile. Any number of relays may run; on SQLite one works and
    the others stand by. Rows that cannot be sent are set aside (`delayq outbox list`).
    """
    from delayq.cli.actions import outbox

    wishes = outbox.Wishes(database, table, every, as_json=as_json)
    raise typer.Exit(outbox.relay_once(session_of(ctx), wishes) if once else outbox.relay(session_of(ctx), wishes))


def sql(ctx: typer.Context, dialect: Dialect, table: TableName = None) -> None:
    """Print the SQL that creates the table."""
    from delayq.cli.actions import outbox

    outbox.sql(session_of(ctx), dialect, table)


def list_refused(
    ctx: typer.Context,
    database: DatabaseUrl = None,
    table: TableName = None,
    limit: Limit = 100,
    as_json: NdJson = False,
) -> None:
    """List the rows that were set aside, with the reason."""
    from delayq.cli.actions import outbox

    outbox.list_refused(session_of(ctx), outbox.Wishes(database, table), limit, as_json=as_json)


def retry(
    ctx: typer.Context,
    numbers: Numbers = None,
    everything: All = False,
    database: DatabaseUrl = None,
    table: TableName = None,
) -> None:
    """Let rows that were set aside be sent after all."""
    from delayq.cli.actions import outbox

    outbox.retry(session_of(ctx), outbox.Wishes(database, table), None if everything else numbers or [])


def forget(
    ctx: typer.Context,
    numbers: Numbers = None,
    everything: All = False,
    database: DatabaseUrl = None,
    table: TableName = None,
    yes: Yes = False,
) -> None:
    """Delete rows that were set aside."""
    from delayq.cli.actions import outbox

    chosen = None if everything else numbers or []
    outbox.forget(session_of(ctx), outbox.Wishes(database, table), chosen, yes=yes)
