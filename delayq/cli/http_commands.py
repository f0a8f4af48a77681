"""`delayq serve`: the HTTP API."""

from __future__ import annotations

from typing import Annotated

import typer

from delayq.cli.flags import Json, example, session_of

Host = Annotated[str, typer.Option("--host", metavar="ADDRESS", help="Where to listen; but for loopback, with keys.")]
Port = Annotated[int, typer.Option("--port", metavar="N", min=0, max=65535, help="0 = one that is free.")]
Names = Annotated[
    list[str] | None,
    typer.Option("--allow-host", metavar="NAME", help="A further name it is called by; may be repeated."),
]
Proxies = Annotated[
    list[str] | None,
    typer.Option(
        "--trusted-proxy",
        metavar="ADDRESS",
        help="Believe X-Forwarded-Proto and X-Forwarded-For from this address or network; may be repeated.",
    ),
]


def add_to(app: typer.Typer) -> None:
    """Give `app` the commands of this module."""
    app.command("serve", epilog=example("delayq serve", "delayq serve --host 0.0.0.0 --port 8080"))(serve)


def serve(
    ctx: typer.Context,
    host: Host = "127.0.0.1",
    port: Port = 8080,
    allow_host: Names = None,
    trusted_proxy: Proxies = None,
    as_json: Json = False,
) -> None:
    """Serve the HTTP API.

    Prints its address once it answers. TERM or Ctrl-C stops it after the requests under way.
    """
    from delayq.cli.actions import http

    http.serve(session_of(ctx), host, port, allow_host or [], trusted_proxy or [], as_json=as_json)
