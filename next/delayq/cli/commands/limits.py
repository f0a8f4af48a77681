"""The group `limit`: concurrency limits and rate limits of jobs."""

from typing import Annotated

import typer

from delayq.cli.families import PLAIN
from delayq.cli.options import Json
from delayq.cli.output import print_json, print_note, print_table, print_text
from delayq.cli.session import session_of
from delayq.core.display import several
from delayq.core.errors import LimitNotFound
from delayq.core.json_shapes.limits import FreedShape, LimitShape, UnknownLimitShape

limit = typer.Typer(help="Limits of jobs: list them, and free places.", no_args_is_help=True, **PLAIN)


@limit.command("list")
def list_limits(context: typer.Context, json: Json = False) -> None:
    """List the limits that workers have used. With --json, print one line for each limit.

    delayq limit list

    HELD is the number of taken places under a concurrency limit. A limit with keys has a line for each key with taken
    places. GRANTED and REFUSED count the answers since the limit was first used.
    """
    session = session_of(context)
    with session.client() as client:
        limits = client.limits.list()
    if json:
        for one in limits:
            print_json(LimitShape.of(one))
        return
    rows = [(one.name, f"{one.held:,}", f"{one.granted:,}", f"{one.refused:,}") for one in limits]
    below = [[f"{key}  {held:,}" for key, held in one.places if key] for one in limits]
    print_table(("LIMIT", "HELD", "GRANTED", "REFUSED"), rows, below=below)
    if not limits and not session.quiet:
        print_note("No worker has used a limit.")


@limit.command("free")
def free_places(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the limit.")],
    key: Annotated[
        str | None,
        typer.Option("--key", metavar="KEY", help="Only places of this key. Default: all keys, at most 1,000."),
    ] = None,
    json: Json = False,
) -> None:
    """Free the places of a limit, so that other jobs can start. Exit code 3: no worker has used this limit.

    delayq limit free mail --key ann

    The jobs that had the places go on running. Until they end, more jobs can run at once than the limit allows.
    """
    session = session_of(context)
    with session.client() as client, session.audited("limit free", name) as deed:
        try:
            freed = client.limits.free(name, key)
        except LimitNotFound:
            if json:
                print_json(UnknownLimitShape(name, key))
            raise
        deed.outcome = several(freed, "place")
    if json:
        print_json(FreedShape(name, key, freed))
    else:
        print_text(f"{name}  {several(freed, 'place')} freed")
