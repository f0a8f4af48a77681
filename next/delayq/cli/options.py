"""Options and arguments that several commands share."""

from typing import Annotated, Any

import typer


def _option(flag: str, metavar: str, help: str) -> Any:
    return typer.Option(flag, metavar=metavar, help=help, show_default=False)


def _argument(metavar: str, help: str) -> Any:
    return typer.Argument(metavar=metavar, help=help, show_default=False)


_Text = str | None
_Texts = list[str] | None

JobId = Annotated[str, _argument("ID", "Id of the job.")]
JobIds = Annotated[_Texts, _argument("ID…", "Ids of failed jobs.")]
QueueName = Annotated[str, _argument("QUEUE", "Name of the queue.")]
MaybeQueue = Annotated[_Text, _argument("QUEUE", "Queue [DELAYQ_QUEUE, else 'default'].")]
Queue = Annotated[_Text, _option("--queue", "QUEUE", "Queue of the job [DELAYQ_QUEUE, else 'default'].")]
WhichQueue = Annotated[_Text, _option("--queue", "QUEUE", "Queue [DELAYQ_QUEUE, else 'default'].")]
WhichQueues = Annotated[_Texts, _option("--queue", "QUEUE,…", "Queues [DELAYQ_QUEUE, else 'default'].")]
OfQueue = Annotated[_Text, _option("--queue", "QUEUE", "Only this queue [all].")]
OfQueues = Annotated[_Texts, _option("--queue", "QUEUE,…", "Only these queues [all].")]
Queues = Annotated[
    _Texts, _option("--queue", "QUEUE,…", "Queues to serve, by priority [queues of the declared jobs, sorted by name].")
]
In = Annotated[_Text, _option("--in", "DURATION", "Run after this time: 90s, 15m, 1h30m, 2d.")]
At = Annotated[_Text, _option("--at", "TIME", "Run at this time: 2026-11-21T15:00:00Z.")]
Tz = Annotated[_Text, _option("--tz", "ZONE", "Time zone of --at: Europe/Berlin.")]
Fold = Annotated[
    int | None, _option("--fold", "0|1", "If --at occurs twice, because clocks go back: 0 = first, 1 = second.")
]
Name = Annotated[_Text, _option("--name", "PATTERN", "Only jobs whose name matches, such as 'order.*'.")]
Tag = Annotated[_Text, _option("--tag", "TAG", "Only jobs with this tag.")]
Since = Annotated[_Text, _option("--since", "TIME", "Only jobs that failed at this time or later; 2h = 2 hours ago.")]
Until = Annotated[_Text, _option("--until", "TIME", "Only jobs that failed at this time or earlier; 2h = 2 hours ago.")]
TimeSince = Annotated[
    _Text, _option("--since", "TIME", "Only jobs whose listed time is this or later; 2h = 2 hours ago.")
]
TimeUntil = Annotated[
    _Text, _option("--until", "TIME", "Only jobs whose listed time is this or earlier; 2h = 2 hours ago.")
]
Signature = Annotated[_Text, _option("--signature", "SIGNATURE", "Only jobs of this group; see `failed groups`.")]
For = Annotated[_Text, _option("--for", "DURATION", "The pause or maintenance ends by itself after this time.")]
Reason = Annotated[str, _option("--reason", "TEXT", "Reason, shown to other people.")]
App = Annotated[_Text, _option("--app", "MODULE", "Module that declares the jobs, such as shop.jobs.")]
ListenersOf = Annotated[_Text, _option("--app", "MODULE", "Module with listeners, such as shop.jobs.")]
Limit = Annotated[int, typer.Option("--limit", metavar="N", min=1, help="Maximum number of jobs.")]
AllFailed = Annotated[bool, typer.Option("--all", help="All failed jobs, in all queues or in --queue.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
