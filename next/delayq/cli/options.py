"""Options that several commands share, each written once."""

from typing import Annotated

import typer

JobId = Annotated[str, typer.Argument(metavar="ID", help="Id of the job.", show_default=False)]
Queue = Annotated[
    str | None,
    typer.Option(
        "--queue", metavar="QUEUE", help="Queue of the job [DELAYQ_QUEUE, else 'default'].", show_default=False
    ),
]
In = Annotated[str | None, typer.Option("--in", metavar="DURATION", help="Run after this time: 90s, 15m, 1h30m, 2d.")]
At = Annotated[str | None, typer.Option("--at", metavar="TIME", help="Run at this time: 2026-11-21T15:00:00Z.")]
Tz = Annotated[str | None, typer.Option("--tz", metavar="ZONE", help="Time zone of --at: Europe/Berlin.")]
Fold = Annotated[
    int | None,
    typer.Option("--fold", metavar="0|1", help="Which of two, when --at happens twice: 0 the first, 1 the second."),
]
Name = Annotated[
    str | None,
    typer.Option("--name", metavar="PATTERN", help="Only jobs with this name, such as 'order.*'.", show_default=False),
]
Tag = Annotated[str | None, typer.Option("--tag", metavar="TAG", help="Only jobs with this tag.", show_default=False)]
Limit = Annotated[int, typer.Option("--limit", metavar="N", min=1, help="Jobs at most.")]
WhichQueue = Annotated[
    str | None,
    typer.Option("--queue", metavar="QUEUE", help="The queue [DELAYQ_QUEUE, else 'default'].", show_default=False),
]
OfQueue = Annotated[
    str | None, typer.Option("--queue", metavar="QUEUE", help="Only this queue [all].", show_default=False)
]
MaybeQueue = Annotated[
    str | None, typer.Argument(metavar="QUEUE", help="The queue [DELAYQ_QUEUE, else 'default'].", show_default=False)
]
QueueName = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue.", show_default=False)]
JobIds = Annotated[list[str] | None, typer.Argument(metavar="ID…", help="Ids of failed jobs.", show_default=False)]
OfQueues = Annotated[
    list[str] | None, typer.Option("--queue", metavar="QUEUE,…", help="Only these queues [all].", show_default=False)
]
Since = Annotated[
    str | None,
    typer.Option("--since", metavar="TIME", help="Failed since: 2h for 2 hours ago, or a time.", show_default=False),
]
Until = Annotated[
    str | None,
    typer.Option("--until", metavar="TIME", help="Failed until: 2h for 2 hours ago, or a time.", show_default=False),
]
Signature = Annotated[
    str | None,
    typer.Option("--signature", metavar="SIGNATURE", help="Only this group of `failed groups`.", show_default=False),
]
AllFailed = Annotated[bool, typer.Option("--all", help="All failed jobs, of all queues or those of --queue.")]
For = Annotated[
    str | None,
    typer.Option("--for", metavar="DURATION", help="End by itself after this time.", show_default=False),
]
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for other people.", show_default=False)]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
App = Annotated[
    str | None,
    typer.Option(
        "--app", metavar="MODULE", help="Module that declares the jobs, such as shop.jobs.", show_default=False
    ),
]
Queues = Annotated[
    list[str] | None,
    typer.Option(
        "--queue",
        metavar="QUEUE,…",
        help="Queues to serve, the first one first [those of the jobs].",
        show_default=False,
    ),
]
