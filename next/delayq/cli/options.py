"""Options that several commands share."""

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
    typer.Option("--fold", metavar="0|1", help="If --at occurs twice, as clocks go back: 0 = first, 1 = second."),
]
Name = Annotated[
    str | None,
    typer.Option(
        "--name", metavar="PATTERN", help="Only jobs whose name matches, such as 'order.*'.", show_default=False
    ),
]
Tag = Annotated[str | None, typer.Option("--tag", metavar="TAG", help="Only jobs with this tag.", show_default=False)]
Limit = Annotated[int, typer.Option("--limit", metavar="N", min=1, help="Maximum number of jobs.")]
WhichQueue = Annotated[
    str | None,
    typer.Option("--queue", metavar="QUEUE", help="Queue [DELAYQ_QUEUE, else 'default'].", show_default=False),
]
WhichQueues = Annotated[
    list[str] | None,
    typer.Option("--queue", metavar="QUEUE,…", help="Queues [DELAYQ_QUEUE, else 'default'].", show_default=False),
]
OfQueue = Annotated[
    str | None, typer.Option("--queue", metavar="QUEUE", help="Only this queue [all].", show_default=False)
]
MaybeQueue = Annotated[
    str | None, typer.Argument(metavar="QUEUE", help="Queue [DELAYQ_QUEUE, else 'default'].", show_default=False)
]
QueueName = Annotated[str, typer.Argument(metavar="QUEUE", help="Name of the queue.", show_default=False)]
JobIds = Annotated[list[str] | None, typer.Argument(metavar="ID…", help="Ids of failed jobs.", show_default=False)]
OfQueues = Annotated[
    list[str] | None, typer.Option("--queue", metavar="QUEUE,…", help="Only these queues [all].", show_default=False)
]
Since = Annotated[
    str | None,
    typer.Option(
        "--since",
        metavar="TIME",
        help="Only jobs that failed at this time or later; 2h = 2 hours ago.",
        show_default=False,
    ),
]
Until = Annotated[
    str | None,
    typer.Option(
        "--until",
        metavar="TIME",
        help="Only jobs that failed at this time or earlier; 2h = 2 hours ago.",
        show_default=False,
    ),
]
TimeSince = Annotated[
    str | None,
    typer.Option(
        "--since",
        metavar="TIME",
        help="Only jobs whose listed time is this or later; 2h = 2 hours ago.",
        show_default=False,
    ),
]
TimeUntil = Annotated[
    str | None,
    typer.Option(
        "--until",
        metavar="TIME",
        help="Only jobs whose listed time is this or earlier; 2h = 2 hours ago.",
        show_default=False,
    ),
]
Signature = Annotated[
    str | None,
    typer.Option(
        "--signature", metavar="SIGNATURE", help="Only jobs of this group; see `failed groups`.", show_default=False
    ),
]
AllFailed = Annotated[bool, typer.Option("--all", help="All failed jobs, in all queues or in --queue.")]
For = Annotated[
    str | None,
    typer.Option(
        "--for",
        metavar="DURATION",
        help="The pause or maintenance ends by itself after this time.",
        show_default=False,
    ),
]
Reason = Annotated[
    str, typer.Option("--reason", metavar="TEXT", help="Reason, shown to other people.", show_default=False)
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
App = Annotated[
    str | None,
    typer.Option(
        "--app", metavar="MODULE", help="Module that declares the jobs, such as shop.jobs.", show_default=False
    ),
]
ListenersOf = Annotated[
    str | None,
    typer.Option("--app", metavar="MODULE", help="Module with listeners, such as shop.jobs.", show_default=False),
]
Queues = Annotated[
    list[str] | None,
    typer.Option(
        "--queue",
        metavar="QUEUE,…",
        help="Queues to serve, by priority [queues of the declared jobs].",
        show_default=False,
    ),
]
