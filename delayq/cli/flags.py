"""Options and arguments that several commands share, spelt and explained once."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from delayq.cli.session import Session

JobId = Annotated[str, typer.Argument(metavar="ID", help="The job's id.")]
JobIds = Annotated[list[str] | None, typer.Argument(metavar="ID...", help="Ids of failed jobs.")]
QueueName = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue's name.")]

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
NdJson = Annotated[bool, typer.Option("--json", help="Print JSON, one document a line.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]

# Verbs on one id look in one queue and never search; what only looks shows all queues when none is named.
OneQueue = Annotated[str | None, typer.Option("--queue", metavar="Q", help="The queue; without it, the default one.")]
AnyQueue = Annotated[str | None, typer.Option("--queue", metavar="Q", help="This queue only; without it, all.")]
NamePattern = Annotated[str | None, typer.Option("--name", metavar="PATTERN", help="Names such as 'order.*' only.")]

Delay = Annotated[str | None, typer.Option("--in", metavar="D", help="How long from now: 90s, 15m, 1h30m, 2d, PT15M.")]
At = Annotated[
    str | None, typer.Option("--at", metavar="T", help="When: 2026-11-21T15:00:00Z, or a local time with --tz.")
]
Zone = Annotated[
    str | None, typer.Option("--tz", metavar="ZONE", help="Time zone of an --at without offset: Europe/Berlin.")
]
Fold = Annotated[
    int | None,
    typer.Option(
        "--fold", metavar="0|1", help="Which of two equal times is meant when clocks go back: 0 first, 1 second."
    ),
]

Apps = Annotated[
    list[str] | None,
    typer.Option("--app", metavar="MODULE", help="A module that registers jobs; may be repeated. [env: DELAYQ_APP]"),
]

_KEEP_LINES: Final = "\b\n"


def example(*lines: str) -> str:
    """The end of a command's help; every command has one."""
    commands = "\n".join(f"  {line}" for line in lines)
    return f"{_KEEP_LINES}{'Example' if len(lines) == 1 else 'Examples'}:\n{commands}"


def session_of(ctx: typer.Context) -> Session:
    """What was said before the command."""
    session: Session = ctx.obj
    return session
