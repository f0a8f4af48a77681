"""Options that several commands share, each written once."""

from typing import Annotated

import typer

JobId = Annotated[str, typer.Argument(metavar="ID", help="Id of the job.", show_default=False)]
Queue = Annotated[
    str | None, typer.Option("--queue", metavar="QUEUE", help="Queue of the job [default].", show_default=False)
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
App = Annotated[
    str | None,
    typer.Option(
        "--app", metavar="MODULE", help="Module that declares the jobs, such as shop.jobs.", show_default=False
    ),
]
Queues = Annotated[
    str | None,
    typer.Option(
        "--queue",
        metavar="QUEUE,…",
        help="Queues to serve, the first one first [those of the jobs].",
        show_default=False,
    ),
]
