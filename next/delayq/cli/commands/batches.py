"""The group `batch`: list, show, cancel, retry."""

from collections.abc import Sequence
from typing import Annotated, Final

import typer

from delayq.cli.families import PLAIN
from delayq.cli.options import Json, Yes
from delayq.cli.output import confirm, print_json, print_note, print_table, print_text
from delayq.cli.progress import Progress
from delayq.cli.session import session_of
from delayq.cli.unconfirmed import UNCERTAIN
from delayq.client import DelayQ
from delayq.core.batch_info import BatchInfo, MissingJob
from delayq.core.display import several
from delayq.core.errors import (
    BackendError,
    BatchNotFound,
    CallRefused,
    Conflict,
    NodeError,
    OutcomeUnknown,
    replace_hint,
)
from delayq.core.json_shapes.batches import (
    BatchOutcomeShape,
    BatchRetryShape,
    BatchShape,
    UnknownBatchShape,
)
from delayq.core.json_shapes.members import members_of
from delayq.core.times import format_instant
from delayq.redis.operations.batches import MAX_LISTED

MAX_JOBS: Final = 20
"""Maximum number of failed jobs, and of members without a job, that `show` lists."""

_NOTES: Final = {
    "unsent": "Not sent: if the program that dispatched the batch has died, repeat the dispatch with the same id, or "
    "end the batch: `delayq batch cancel {id}`.",
    "ended": "Sent before: the job has ended, and a relay records this within seconds if one is running. If another "
    "program deleted the job, end the batch: `delayq batch cancel {id}`.",
    "next": "Next link: the unique key of this link is taken, or a relay has not yet sent the link, or has not yet "
    "recorded its end. In all three cases, the chain goes on by itself.",
}
"""An explanation for each reason why a member has no job. It begins with the text of this reason in the rows."""
_OF_CANCELLED: Final = (
    "The batch is cancelled, and a relay records the ends of its members within seconds if one is running. If another "
    "program deleted a job, repeat `delayq batch cancel {id}`."
)

BatchId = Annotated[str, typer.Argument(metavar="ID", help="Id of the batch.", show_default=False)]

batch = typer.Typer(help="Batches of jobs: list, show, cancel and retry them.", no_args_is_help=True, **PLAIN)


@batch.command("list")
def list_batches(
    context: typer.Context,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, max=MAX_LISTED, help="Maximum number of batches.")
    ] = 100,
    json: Json = False,
) -> None:
    """List the batches, newest first. With --json, print one line for each batch.

    delayq batch list --limit 20
    """
    session = session_of(context)
    with session.client() as client:
        found = client.batches.list(limit)
    if json:
        for info in found:
            print_json(BatchShape.of(info))
    else:
        rows = [
            (
                info.id,
                info.name,
                info.state,
                info.total,
                info.pending,
                info.succeeded,
                info.failed,
                info.skipped,
                format_instant(info.created_ms),
            )
            for info in found
        ]
        print_table(("ID", "NAME", "STATE", "TOTAL", "PENDING", "SUCCEEDED", "FAILED", "SKIPPED", "CREATED"), rows)
    if not found and not session.quiet:
        print_note("No batch is known.")


@batch.command("show")
def show(context: typer.Context, id: BatchId, json: Json = False) -> None:
    """Show the counts of a batch, up to 20 failed jobs, and up to 20 pending members without a job.

    Exit code 3: the id is unknown.

    delayq batch show import-2026-11
    """
    session = session_of(context)
    with session.client() as client:
        try:
            info = client.batches.require(id)
            failed = client.batches.failed(id, limit=MAX_JOBS) if info.failed else []
            missing, refused = _without_job(client, info)
        except BatchNotFound:
            if json:
                print_json(UnknownBatchShape(id))
            raise
    if json:
        print_json(BatchShape.of(info).with_jobs(failed, missing))
    else:
        _print_batch(info, failed, missing or ())
    if refused is not None:
        raise refused
    if json:
        return
    if missing and not session.quiet:
        reasons = dict.fromkeys(job.reason for job in missing)
        if info.is_cancelled:
            reasons.pop("next", None)  # the relay stops the chain
        for note in dict.fromkeys(_OF_CANCELLED if info.is_cancelled else _NOTES[reason] for reason in reasons):
            print_note(note.format(id=id))
    if failed and not session.quiet:
        queue, job_id = failed[0]
        if info.failed > len(failed):
            print_note(f"Only {len(failed)} of {info.failed:,} failed jobs are listed.")
        print_note(
            f"`delayq failed show {job_id} --queue {queue}` shows the error of a job. "
            f"`delayq batch retry {id}` retries all failed jobs of the batch."
        )


def _without_job(client: DelayQ, info: BatchInfo) -> tuple[Sequence[MissingJob] | None, BackendError | None]:
    """Return the pending members without a job, and None as error.

    If the queue of a member cannot be read, return None and the error.
    """
    if info.finished_ms is not None:
        return [], None
    try:
        return client.batches.without_job(info.id, limit=MAX_JOBS), None
    except (CallRefused, NodeError) as error:
        return None, error


@batch.command("cancel")
def cancel(context: typer.Context, id: BatchId, yes: Yes = False, json: Json = False) -> None:
    """Cancel a batch: its waiting jobs are cancelled, and running jobs may finish, but do not run again.

    delayq batch cancel import-2026-11 --yes

    Exit code 3: the id is unknown; 4: the batch has finished.
    """
    session = session_of(context)
    with session.client() as client:
        try:
            info = client.batches.require(id)
            if info.finished_ms is None:
                confirm(f"Cancel the {several(info.pending, 'pending member')} of the batch {id}", yes=yes)
            with session.audited("batch cancel", id) as deed:
                client.batches.cancel(id)
                deed.outcome = "cancelled"
        except BatchNotFound:
            if json:
                print_json(BatchOutcomeShape(id, "unknown"))
            raise
        except Conflict:
            if json:
                print_json(BatchOutcomeShape(id, "finished"))
            raise
        except OutcomeUnknown as error:
            if json:
                print_json(BatchOutcomeShape(id, "uncertain"))
            else:
                print_text(f"{id}  {UNCERTAIN}")
            replace_hint(error, f"Repeat the command, or check with: delayq batch show {id}")
            raise
    if json:
        print_json(BatchOutcomeShape(id, "cancelled"))
    else:
        print_text(f"{id}  cancelled")


@batch.command("retry")
def retry(context: typer.Context, id: BatchId, json: Json = False) -> None:
    """Run the failed jobs of a batch again. Their attempts are counted from 0.

    delayq batch retry import-2026-11

    Exit code 3: the id is unknown. If a job cannot be retried, the other failed jobs are retried. Then the command
    prints the first error, and exits with the code of this error.
    """
    session = session_of(context)
    retried, progress = 0, Progress("retried")

    def count(number: int) -> None:
        nonlocal retried
        retried = number
        progress.tell(number)

    with session.client() as client, session.audited("batch retry", id) as deed:
        try:
            client.batches.require(id)
        except BatchNotFound:
            if json:
                print_json(BatchOutcomeShape(id, "unknown"))
            raise
        try:
            client.batches.retry(id, progress=count)
        finally:
            if json:
                print_json(BatchRetryShape(id, retried))
            else:
                print_text(f"{id}  {several(retried, 'job')} retried")
        deed.outcome = f"{retried} retried"


def _print_batch(info: BatchInfo, failed: Sequence[tuple[str, str]], missing: Sequence[MissingJob]) -> None:
    for member, value in members_of(BatchShape.of(info)).items():
        if not (member.endswith("_ms") or value is None or value is False or value == ""):
            print_text(f"{member.replace('_', ' '):<15} {'yes' if value is True else value}")
    for queue, job_id in failed:
        print_text(f"{'failed job':<15} {job_id} in queue {queue}")
    for job in missing:
        why = {"unsent": "not sent", "ended": "sent before", "next": f"next link of {job.member}"}[job.reason]
        print_text(f"{'no job':<15} {job.id} in queue {job.queue}, {why}")
