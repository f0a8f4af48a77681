"""`delayq batch …`: many jobs that were dispatched as one."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from delayq.cli.flags import Json, NdJson, batch_id, example, session_of
from delayq.cli.limit_commands import given_reason

BatchId = Annotated[str, typer.Argument(metavar="ID", help="The batch's id.", callback=batch_id)]
Limit = Annotated[int, typer.Option("--limit", metavar="N", min=1, max=1000, help="At most so many, newest first.")]
UNSAID: Final = "none given"
Why = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; it is kept.", callback=given_reason)]


def add_to(app: typer.Typer) -> None:
    """Give `app` the group `batch`."""
    batch = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
    batch.callback(epilog=example("delayq batch list"))(_batch)
    batch.command("list", epilog=example("delayq batch list --limit 10"))(list_batches)
    batch.command("show", epilog=example("delayq batch show import-7"))(show)
    batch.command("cancel", epilog=example("delayq batch cancel import-7 --reason 'wrong file'"))(cancel)
    batch.command("retry", epilog=example("delayq batch retry import-7 --reason 'the API is back'"))(retry)
    app.add_typer(batch, name="batch")


def _batch() -> None:
    """Look at batches, cancel them, retry what failed in them."""


def list_batches(ctx: typer.Context, limit: Limit = 50, as_json: NdJson = False) -> None:
    """List batches with how far they are."""
    from delayq.cli.actions import batches

    batches.list_batches(session_of(ctx), limit, as_json=as_json)


def show(ctx: typer.Context, batch_id: BatchId, as_json: Json = False) -> None:
    """Show one batch with its failed and pending members."""
    from delayq.cli.actions import batches

    batches.show(session_of(ctx), batch_id, as_json=as_json)


def cancel(ctx: typer.Context, batch_id: BatchId, reason: Why = UNSAID, as_json: Json = False) -> None:
    """Let nothing of a batch start any more; what runs goes on. It goes to the audit log."""
    from delayq.cli.actions import batches

    batches.cancel(session_of(ctx), batch_id, reason, as_json=as_json)


def retry(ctx: typer.Context, batch_id: BatchId, reason: Why = UNSAID, as_json: Json = False) -> None:
    """Give all failed members of a batch all their tries again. It goes to the audit log."""
    from delayq.cli.actions import batches

    batches.retry(session_of(ctx), batch_id, reason, as_json=as_json)
