"""`delayq failed …`: jobs that have no tries left."""

from __future__ import annotations

from typing import Annotated

import typer

from delayq.cli.flags import (
    AnyQueue,
    AnyQueues,
    JobId,
    JobIds,
    Json,
    NamePattern,
    NdJson,
    OneQueue,
    Yes,
    duration,
    example,
    failed_signature,
    moment,
    rate,
    session_of,
)

All = Annotated[bool, typer.Option("--all", help="All failed jobs of the queues that are meant.")]
Limit = Annotated[int, typer.Option("--limit", metavar="N", min=1, help="At most so many.")]
Older = Annotated[
    str, typer.Option("--older", metavar="D", help="How long ago they must have failed.", callback=duration)
]
Since = Annotated[
    str | None,
    typer.Option("--since", metavar="T", help="Failed then or later: a time, or how long ago (2h).", callback=moment),
]
Until = Annotated[
    str | None,
    typer.Option("--until", metavar="T", help="Failed then or earlier: a time, or how long ago.", callback=moment),
]
Signature = Annotated[
    str | None,
    typer.Option("--signature", metavar="S", help="Of one group of `failed groups`.", callback=failed_signature),
]
Looks = Annotated[int, typer.Option("--looks", metavar="N", min=1, help="Look at the newest N failed jobs.")]
NewData = Annotated[
    str | None, typer.Option("--data", metavar="JSON|@FILE|-", help="The new payload of one job; - reads stdin.")
]
Rate = Annotated[
    str | None, typer.Option("--rate", metavar="R", help="At most so many: 10/s, 600/m, 5000/h.", callback=rate)
]


def add_to(app: typer.Typer) -> None:
    """Give `app` the group `failed`."""
    failed = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
    failed.callback(epilog=example("delayq failed list"))(_failed)
    failed.command("list", epilog=example("delayq failed list --name 'order.*'"))(list_failed)
    failed.command("groups", epilog=example("delayq failed groups --queue orders"))(groups)
    failed.command("show", epilog=example("delayq failed show order-42"))(show)
    failed.command(
        "retry",
        epilog=example(
            "delayq failed retry order-42",
            "delayq failed retry --all --queue orders --rate 10/s",
            "delayq failed retry --name 'order.*' --since 2h --until 2026-11-21T15:00:00Z",
        ),
    )(retry)
    failed.command("forget", epilog=example("delayq failed forget order-42"))(forget)
    failed.command("flush", epilog=example("delayq failed flush --queue orders --yes"))(flush)
    failed.command("prune", epilog=example("delayq failed prune --older 30d"))(prune)
    failed.command("kick", epilog=example("delayq failed kick --queue orders"))(kick)
    app.add_typer(failed, name="failed")


def _failed() -> None:
    """Look at failed jobs, retry or forget them."""


def list_failed(
    ctx: typer.Context,
    queue: AnyQueues = None,
    name: NamePattern = None,
    since: Since = None,
    until: Until = None,
    signature: Signature = None,
    limit: Limit = 100,
    as_json: NdJson = False,
) -> None:
    """List failed jobs with their last error, and their first."""
    from delayq.cli.actions import failed
    from delayq.cli.actions.chosen import Chosen

    queues = tuple(queue or ())
    chosen = Chosen((), name=name, since=since, until=until, queues=queues, signature=signature)
    failed.list_failed(session_of(ctx), chosen, limit, as_json=as_json)


def groups(
    ctx: typer.Context,
    queue: AnyQueue = None,
    name: NamePattern = None,
    since: Since = None,
    until: Until = None,
    looks: Looks = 10_000,
    as_json: NdJson = False,
) -> None:
    """Group failed jobs by job name and error.

    Numbers, ids and quoted text in messages count as equal. `failed retry --signature S` retries one group.
    """
    from delayq.cli.actions import failed
    from delayq.cli.actions.chosen import Chosen

    chosen = Chosen((), name=name, since=since, until=until)
    failed.groups(session_of(ctx), chosen, queue, looks, as_json=as_json)


def show(ctx: typer.Context, job_id: JobId, queue: AnyQueues = None, as_json: Json = False) -> None:
    """Show one failed job with its traceback, whichever queue it is in."""
    from delayq.cli.actions import failed

    failed.show(session_of(ctx), job_id, queue or [], as_json=as_json)


def retry(
    ctx: typer.Context,
    job_ids: JobIds = None,
    every: All = False,
    name: NamePattern = None,
    since: Since = None,
    until: Until = None,
    signature: Signature = None,
    queue: AnyQueues = None,
    rate: Rate = None,
    data: NewData = None,
    as_json: NdJson = False,
) -> None:
    """Give failed jobs all their tries again.

    With --all, --name, --since or --until: those of every queue that `failed list` shows, or of --queue. No match is
    no error (exit code 0).
    """
    from delayq.cli.actions import failed
    from delayq.cli.actions.chosen import Chosen

    ids, queues = tuple(job_ids or ()), tuple(queue or ())
    chosen = Chosen(ids, every=every, name=name, since=since, until=until, queues=queues, signature=signature)
    raise typer.Exit(failed.retry(session_of(ctx), chosen, rate, data, as_json=as_json))


def forget(
    ctx: typer.Context,
    job_ids: JobIds = None,
    every: All = False,
    name: NamePattern = None,
    since: Since = None,
    until: Until = None,
    signature: Signature = None,
    queue: AnyQueues = None,
    yes: Yes = False,
    as_json: NdJson = False,
) -> None:
    """Drop failed jobs for good.

    With --all, --name, --since or --until: those of every queue that `failed list` shows, or of --queue.
    """
    from delayq.cli.actions import failed
    from delayq.cli.actions.chosen import Chosen

    ids, queues = tuple(job_ids or ()), tuple(queue or ())
    chosen = Chosen(ids, every=every, name=name, since=since, until=until, queues=queues, signature=signature)
    raise typer.Exit(failed.forget(session_of(ctx), chosen, yes=yes, as_json=as_json))


def flush(ctx: typer.Context, queue: AnyQueues = None, yes: Yes = False, as_json: NdJson = False) -> None:
    """Drop all failed jobs for good."""
    from delayq.cli.actions import failed
    from delayq.cli.actions.chosen import Chosen

    failed.flush(session_of(ctx), Chosen((), every=True, queues=tuple(queue or ())), yes=yes, as_json=as_json)


def prune(ctx: typer.Context, older: Older, queue: AnyQueues = None, as_json: NdJson = False) -> None:
    """Drop the jobs that failed long ago."""
    from delayq.cli.actions import failed
    from delayq.cli.actions.chosen import Chosen

    failed.prune(session_of(ctx), Chosen((), every=True, queues=tuple(queue or ())), older, as_json=as_json)


def kick(ctx: typer.Context, queue: OneQueue = None, limit: Limit = 100, as_json: Json = False) -> None:
    """Give back what beanstalkd has buried as unreadable.

    With --connection before the command. Failed jobs are not among it: retry them.
    """
    from delayq.cli.actions import failed

    failed.kick(session_of(ctx), queue, limit, as_json=as_json)
