"""`delayq lock …`: which unique keys are held, and by whom."""

from __future__ import annotations

from typing import Annotated

import typer

from delayq.cli.flags import Json, NdJson, example, session_of
from delayq.cli.limit_commands import Limit, Reason

Lock = Annotated[str | None, typer.Argument(metavar="LOCK", help="What the list calls it.")]
Key = Annotated[str | None, typer.Option("--key", metavar="TEXT", help='The key as it was given: unique="TEXT".')]
Queue = Annotated[str | None, typer.Option("--queue", "-q", metavar="Q", help="Its queue.")]


def add_to(app: typer.Typer) -> None:
    """Give `app` the group `lock`."""
    locks = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
    locks.callback(epilog=example("delayq lock list"))(_lock)
    locks.command("list", epilog=example("delayq lock list --queue orders --json"))(list_locks)
    locks.command("show", epilog=example("delayq lock show --key invoice:42 --queue orders"))(show)
    locks.command("free", epilog=example("delayq lock free --key invoice:42 --reason 'the job was moved'"))(free)
    app.add_typer(locks, name="lock")


def _lock() -> None:
    """Look at the locks of unique jobs, and free one."""


def list_locks(ctx: typer.Context, queue: Queue = None, limit: Limit = 100, as_json: NdJson = False) -> None:
    """List the unique keys that are held, each with its owner."""
    from delayq.cli.actions import locks

    locks.list_locks(session_of(ctx), queue, limit, as_json=as_json)


def show(ctx: typer.Context, lock: Lock = None, key: Key = None, queue: Queue = None, as_json: Json = False) -> None:
    """Show who holds a unique key."""
    from delayq.cli.actions import locks

    locks.show(session_of(ctx), locks.Target(lock, key, queue), as_json=as_json)


def free(
    ctx: typer.Context,
    reason: Reason,
    lock: Lock = None,
    key: Key = None,
    queue: Queue = None,
    as_json: Json = False,
) -> None:
    """Free a unique key by hand.

    Its owner goes on. The reason goes to the audit log.
    """
    from delayq.cli.actions import locks

    locks.free(session_of(ctx), locks.Target(lock, key, queue), reason, as_json=as_json)
