"""healthcheck: is the process of a container well? For HEALTHCHECK and probes."""

from __future__ import annotations

from typing import Annotated

import typer

from delayq.cli.flags import example, one_of, session_of

ROLES = ("worker", "mover", "serve", "redis")
Role = Annotated[
    str,
    typer.Option("--role", metavar="worker|mover|serve|redis", help="Whose.", callback=one_of("--role", *ROLES)),
]
Port = Annotated[int, typer.Option("--port", metavar="N", min=1, max=65535, help="Of `delayq serve` on this machine.")]


def add_to(app: typer.Typer) -> None:
    """Give `app` the commands of this module."""
    app.command("healthcheck", epilog=example("delayq healthcheck --role worker"))(healthcheck)


def healthcheck(ctx: typer.Context, role: Role = "redis", port: Port = 8080) -> None:
    """Say whether a role is well, by exit code.

    0 or 1, and 5 when Redis is away. worker: one of this host has announced itself. mover: one looked at every queue
    that has something due. serve: the server on this machine is ready. redis: it answers and takes writes.
    """
    from delayq.cli.actions import health

    raise typer.Exit(health.check(session_of(ctx), role, port))
