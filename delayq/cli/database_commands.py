"""`delayq database …`: the tables of connections that keep jobs, or failed jobs, in a database."""

from __future__ import annotations

from typing import Annotated

import typer

from delayq.cli.flags import Dialect, NdJson, example, session_of

Name = Annotated[
    str | None,
    typer.Option(
        "--connection", metavar="NAME", help="Only this one of [connections]; default: all databases among them."
    ),
]
Url = Annotated[
    str | None,
    typer.Option("--database", metavar="URL", help="A database that no connection names, with Laravel's names."),
]
Check = Annotated[bool, typer.Option("--check", help="Say what is missing and change nothing; 1 when something is.")]


def add_to(app: typer.Typer) -> None:
    """Give `app` the group `database`."""
    database = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
    database.callback(epilog=example("delayq database migrate"))(_database)
    shown = example("delayq database migrate", "delayq database migrate --database sqlite:////var/lib/shop/jobs.db")
    database.command("migrate", epilog=shown)(migrate)
    database.command("sql", epilog=example("delayq database sql postgresql"))(sql)
    app.add_typer(database, name="database")


def _database() -> None:
    """Look after the tables of jobs in a database."""


def migrate(
    ctx: typer.Context, name: Name = None, database: Url = None, check: Check = False, as_json: NdJson = False
) -> None:
    """Create the tables, or bring them up to date.

    Those of every connection that keeps jobs in a database, and of failed jobs where `failed =` names one. What is
    there stays; tables that Laravel made get the columns they lack. It may be run at every deployment. A database that
    is away keeps nobody from the others; the exit code is 5 then.
    """
    from delayq.cli.actions import database as action

    wishes = action.Wishes(name, database, check)
    raise typer.Exit(action.migrate(session_of(ctx), wishes, as_json=as_json))


def sql(ctx: typer.Context, kind: Dialect) -> None:
    """Print the SQL that creates the tables."""
    from delayq.cli.actions import database as action

    action.sql(session_of(ctx), kind)
