"""The group `failed`: list, groups and show. `failed_changes` has retry, forget, flush and prune."""

from itertools import islice
from typing import Annotated, Final

import typer

from delayq.cli.commands import failed_changes
from delayq.cli.commands.show_jobs import print_job
from delayq.cli.families import PLAIN
from delayq.cli.options import Json, Limit, Name, OfQueues, Signature, Since, Tag, Until
from delayq.cli.output import print_json, print_note, print_table
from delayq.cli.selection import Refusals, Selection, found_jobs, head, named_queues, only_queue, print_refusal
from delayq.cli.session import session_of
from delayq.core.display import several
from delayq.core.errors import FoundElsewhere, JobNotFailed, JobNotFound
from delayq.core.failure import Failure
from delayq.core.failure_groups import Grouping
from delayq.core.json_shapes.jobs import FailedGroupShape, FailedJobShape, UnknownJobShape
from delayq.core.times import format_instant
from delayq.core.views import JobInfo

MAX_ERROR: Final = 120
"""Maximum length of an error in a list, in characters."""

failed = typer.Typer(
    help="Failed jobs (dead letters): list, group, retry and delete them.", no_args_is_help=True, **PLAIN
)


@failed.command("list")
def list_failed(
    context: typer.Context,
    queue: OfQueues = None,
    name: Name = None,
    tag: Tag = None,
    since: Since = None,
    until: Until = None,
    signature: Signature = None,
    limit: Limit = 100,
    json: Json = False,
) -> None:
    """List failed jobs with their errors, latest first. With --json, print one line for each job.

    delayq failed list --name 'order.*' --since 1d
    """
    chosen = Selection(queue=queue, name=name, tag=tag, since=since, until=until, signature=signature)
    session, refusals = session_of(context), Refusals()
    with session.client() as client:
        jobs, is_more = head(found_jobs(client, chosen.search(client), refusals), limit)
    if json:
        for job in jobs:
            print_json(FailedJobShape.of(job))
    else:
        rows = [(job.id, job.name, job.queue, format_instant(job.failed_ms or 0), _errors(job)) for job in jobs]
        print_table(("ID", "NAME", "QUEUE", "FAILED", "ERROR"), rows)
    if is_more:
        print_note(f"The list has only {several(limit, 'job')}, but more match. Use a higher --limit.")
    if not jobs and not refusals.exit_code and not session.quiet:
        print_note(failed_changes.NOTHING)
    raise typer.Exit(refusals.exit_code)


@failed.command("groups")
def groups(
    context: typer.Context,
    queue: OfQueues = None,
    name: Name = None,
    tag: Tag = None,
    since: Since = None,
    until: Until = None,
    limit: Annotated[
        int, typer.Option("--limit", min=1, help="Maximum number of failed jobs to read, latest first.")
    ] = 10_000,
    json: Json = False,
) -> None:
    """Group failed jobs by name and error, largest group first. With --json, print one line for each group.

    delayq failed groups --since 1d
    """
    chosen = Selection(queue=queue, name=name, tag=tag, since=since, until=until)
    session, refusals, grouping = session_of(context), Refusals(), Grouping()
    with session.client() as client:
        found = found_jobs(client, chosen.search(client), refusals)
        for job in islice(found, limit):
            grouping.add(job)
        is_more = next(found, None) is not None
    groups = grouping.groups()
    if json:
        for group in groups:
            print_json(FailedGroupShape.of(group))
    else:
        rows = [
            (one.signature, one.count, one.name, format_instant(one.last_ms), _cut(f"{one.type}: {one.message}"))
            for one in groups
        ]
        print_table(("SIGNATURE", "JOBS", "NAME", "LAST", "ERROR"), rows)
    if is_more:
        print_note(f"The groups count only {several(limit, 'failed job')}, but more match. Use a higher --limit.")
    if not groups and not refusals.exit_code and not session.quiet:
        print_note(failed_changes.NOTHING)
    raise typer.Exit(refusals.exit_code)


@failed.command("show")
def show(
    context: typer.Context,
    id: Annotated[str, typer.Argument(metavar="ID", help="Id of the job.", show_default=False)],
    queue: OfQueues = None,
    json: Json = False,
) -> None:
    """Show all details of a failed job. Exit code 3: the id is unknown. Exit code 4: the job has not failed.

    delayq failed show order-42
    """
    with session_of(context).client() as client:
        queues = named_queues(client, queue)
        try:
            job = client.find_failed(id, queues=queues)
        except FoundElsewhere:
            raise
        except JobNotFound:
            if json:
                print_json(UnknownJobShape(id, only_queue(queues)))
            raise
        except JobNotFailed as error:
            if json:
                print_refusal(error, id, None)
            raise
        print_job(job, as_json=json)


failed.command("retry")(failed_changes.retry)
failed.command("forget")(failed_changes.forget)
failed.command("flush")(failed_changes.flush)
failed.command("prune")(failed_changes.prune)


def _errors(job: JobInfo) -> str:
    """Return the last error, and the first error if it differs, because often only the first error shows the cause."""
    if job.failure is None:
        return ""
    last, first = _error(job.failure), _error(job.failure.first)
    return last if last == first else f"{last}; first {first}"


def _error(failure: Failure) -> str:
    return _cut(f"{failure.type}: {failure.message}")


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MAX_ERROR else f"{line[:MAX_ERROR]}…"
