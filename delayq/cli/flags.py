"""Options and arguments that several commands share, spelt, explained and checked once.

What can be checked without a server is checked as the words are read: a command with a bad queue name must not start
the embedded server first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Final

import typer

from delayq.cli.session import Session


def queue_name(value: str | None) -> str | None:
    """Raises `InvalidName` for what cannot name a queue."""
    from delayq.core.names import check_queue

    return None if value is None else check_queue(value)


def queue_names(value: str | None) -> str | None:
    """As `queue_name`, for each of `a,b`; the answer has no blanks and each queue once."""
    from delayq.core.names import check_queue

    return None if value is None else ",".join(dict.fromkeys(check_queue(name.strip()) for name in value.split(",")))


def named_queues(values: list[str] | None) -> list[str]:
    """The queues of `--queue a,b --queue c`, each once. Raises `InvalidName`."""
    from delayq.core.names import check_queue

    names = (name.strip() for value in values or () for name in value.split(","))
    return [check_queue(name) for name in dict.fromkeys(names)]


def job_id(value: str | None) -> str | None:
    """Raises `InvalidName` for what cannot be an id."""
    from delayq.core.names import check_id

    return None if value is None else check_id(value)


def batch_id(value: str) -> str:
    """As `job_id`, of a batch."""
    from delayq.core.names import check_batch_id

    return check_batch_id(value)


def job_ids(values: list[str] | None) -> list[str]:
    """As `job_id`, for each."""
    from delayq.core.names import check_id

    return [check_id(value) for value in values or ()]


def duration(value: str | None) -> str | None:
    """Raises `InvalidDuration`; the text itself goes on, because the engine reads it."""
    from delayq.core.durations import duration_ms

    if value is not None:
        duration_ms(value)
    return value


def moment(value: str | None) -> str | None:
    """Raises `InvalidInput` for what is neither a time nor how long ago; the text itself goes on."""
    import time

    from delayq.core.failed import moment_ms

    if value is not None:
        moment_ms(value, time.time_ns() // 1_000_000)
    return value


def failed_signature(value: str | None) -> str | None:
    """Raises `InvalidInput` for text that is not a signature of failed jobs; returns the text."""
    from delayq.core.failure_groups import check_signature

    return None if value is None else check_signature(value)


def rate(value: str | None) -> str | None:
    """Raises `InvalidInput` for what is no rate; the text itself goes on."""
    from delayq.core.rate import parse_rate

    if value is not None:
        parse_rate(value)
    return value


def lease(value: str | None) -> str | None:
    """As `duration`, and raises `InvalidInput` for what is too short or too long to be a lease."""
    from delayq.core.leases import check_lease

    if value is not None:
        check_lease(value)
    return value


def durability(value: str | None) -> str | None:
    """Raises `InvalidInput` for what names no durability; the text itself goes on."""
    from delayq.core.durability import parse_durability

    if value is not None:
        parse_durability(value)
    return value


def one_of(option: str, *choices: str) -> Callable[[str | None], str | None]:
    """A reader that raises `InvalidInput` for anything but `choices`."""

    def read(value: str | None) -> str | None:
        from delayq.core.errors import InvalidInput
        from delayq.core.shown import shown

        if value is not None and value not in choices:
            raise InvalidInput(f"{option} {shown(value)} is not known.", hint=f"Use one of: {', '.join(choices)}.")
        return value

    return read


JobId = Annotated[str, typer.Argument(metavar="ID", help="The job's id.", callback=job_id)]
JobIds = Annotated[list[str] | None, typer.Argument(metavar="ID...", help="Ids of failed jobs.", callback=job_ids)]
QueueName = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue's name.", callback=queue_name)]

Dialect = Annotated[
    str,
    typer.Argument(
        metavar="postgresql|sqlite|mysql",
        help="The database.",
        callback=one_of("The database", "postgresql", "sqlite", "mysql"),
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
NdJson = Annotated[bool, typer.Option("--json", help="Print JSON, one document a line.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]

# Verbs on one id look in one queue and never search; what only looks shows all queues when none is named.
OneQueue = Annotated[
    str | None,
    typer.Option("--queue", metavar="Q", help="The queue; without it, the default one.", callback=queue_name),
]
AnyQueue = Annotated[
    str | None, typer.Option("--queue", metavar="Q", help="This queue only; without it, all.", callback=queue_name)
]
AnyQueues = Annotated[
    list[str] | None,
    typer.Option(
        "--queue",
        metavar="Q,…",
        help="These queues only; may be repeated; without it, all. An ID without it means the default queue.",
        callback=named_queues,
    ),
]
NamePattern = Annotated[str | None, typer.Option("--name", metavar="PATTERN", help="Names such as 'order.*' only.")]

Durability = Annotated[
    str | None,
    typer.Option(
        "--durability",
        metavar="memory|replicas:N|fsync",
        help="How safe it must be before this answers; else exit code 7.",
        callback=durability,
    ),
]

Delay = Annotated[
    str | None,
    typer.Option("--in", metavar="D", help="How long from now: 90s, 15m, 1h30m, 2d, PT15M.", callback=duration),
]
At = Annotated[
    str | None, typer.Option("--at", metavar="T", help="When: 2026-11-21T15:00:00Z, or a local time with --tz.")
]
Zone = Annotated[
    str | None, typer.Option("--tz", metavar="ZONE", help="Time zone of an --at without offset: Europe/Berlin.")
]
Fold = Annotated[
    int | None,
    typer.Option("--fold", metavar="0|1", help="Which is meant when clocks go back: 0 the first, 1 the second."),
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
