"""Commands that change failed jobs: retry, forget, flush, prune."""

import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Annotated, Final

import typer

from delayq.cli.options import AllFailed, JobIds, Json, Name, OfQueues, Signature, Since, Tag, Until, Yes
from delayq.cli.output import confirm, print_json, print_note, print_text
from delayq.cli.payload import read_payload
from delayq.cli.progress import Progress
from delayq.cli.selection import Refusals, Selection, found_jobs, named_queues, only_queue, print_refusal, spread
from delayq.cli.session import session_of
from delayq.cli.unconfirmed import unsure_change
from delayq.client import DelayQ, JobRef
from delayq.core.display import several
from delayq.core.errors import (
    CallRefused,
    Conflict,
    InvalidInput,
    JobNotFound,
    NotConfirmed,
)
from delayq.core.failed import spacing
from delayq.core.json_shapes.answers import DeletedShape, OutcomeShape
from delayq.core.names import check_id
from delayq.core.states import Answer
from delayq.core.times import duration_ms
from delayq.core.views import JobInfo

NOTHING: Final = "No failed job matches."
FORGET_AT_A_TIME: Final = 250
"""Number of failed jobs that `forget` reads before it deletes them, with one call for each queue."""


def retry(
    context: typer.Context,
    ids: JobIds = None,
    queue: OfQueues = None,
    name: Name = None,
    tag: Tag = None,
    since: Since = None,
    until: Until = None,
    signature: Signature = None,
    all: AllFailed = False,
    rate: Annotated[
        str | None, typer.Option("--rate", metavar="RATE", help="Maximum rate: 10/s, 600/m.", show_default=False)
    ] = None,
    data: Annotated[
        str | None, typer.Option("--data", metavar="JSON", help="New payload, for a single id.", show_default=False)
    ] = None,
    here: Annotated[
        bool, typer.Option("--here", help="Run one failed job in this process, for a debugger. Needs --app.")
    ] = False,
    app: Annotated[
        str | None,
        typer.Option(
            "--app",
            metavar="MODULE",
            help="Module that declares the jobs for --here. Without --here: module whose listeners of "
            "JobRetryRequested are called.",
            show_default=False,
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Run failed jobs again. Their attempts are counted from 0. With --json, print one line for each job.

    delayq failed retry --all --rate 10/s

    With --here, one job runs once in this process, without a timeout. After a success, the failed job is deleted. If
    the job does not succeed, it stays unchanged, and the exit code is 1.
    """
    chosen = Selection(ids or (), all, queue, name, tag, since, until, signature)
    chosen.check()
    if here:
        if len(chosen.ids) != 1 or rate is not None:
            raise InvalidInput(
                "--here needs exactly one id, and no --rate.", hint="Name one id, and leave out --rate.", field="here"
            )
        from delayq.cli.commands.failed_here import run_here  # imports the job API, which other commands do not need

        payload = None if data is None else read_payload(data)
        run_here(session_of(context), chosen, payload=payload, app=app, as_json=json)
        return
    if data is not None and len(chosen.ids) != 1:
        raise InvalidInput("--data needs exactly one id.", hint="Name one id.", field="data")
    payload = None if data is None else read_payload(data)
    pause = spacing(rate)
    session, refusals = session_of(context), Refusals()
    if app is not None:
        from delayq.cli.application import load_listeners  # imports the job API, which other commands do not need

        load_listeners(session, app)
    done: Counter[str] = Counter()
    with session.client() as client, session.audited("failed retry", str(chosen)) as deed:
        progress, next_at = Progress("retried"), 0.0
        try:
            for job in _chosen_jobs(chosen, client, refusals, as_json=json):
                time.sleep(max(next_at - time.monotonic(), 0.0))
                next_at = time.monotonic() + pause
                tell = partial(_print_retried, as_json=json)
                try:
                    with unsure_change(job.id, job.queue, tell, as_json=json):
                        tell(client.retry(job.id, queue=job.queue, data=payload))
                except NotConfirmed as error:
                    refusals.tell(error)
                except (JobNotFound, Conflict, CallRefused) as error:
                    refusals.tell(error)
                    if json:
                        print_refusal(error, job.id, job.queue)
                    continue
                done[job.queue] += 1
                progress.tell(done.total())
        finally:
            deed.outcome = f"{done.total()} retried"
            _note_total(done, "retried")
    _note_nothing(done, refusals)
    raise typer.Exit(refusals.exit_code)


def forget(
    context: typer.Context,
    ids: JobIds = None,
    queue: OfQueues = None,
    name: Name = None,
    tag: Tag = None,
    since: Since = None,
    until: Until = None,
    signature: Signature = None,
    all: AllFailed = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Delete failed jobs for good. With --json, print one line for each job.

    delayq failed forget --signature 3f2a91c04be7d815 --yes
    """
    chosen = Selection(ids or (), all, queue, name, tag, since, until, signature)
    chosen.check()
    session, refusals = session_of(context), Refusals()
    done: Counter[str] = Counter()
    with session.client() as client:
        if not chosen.ids and not _may_delete(chosen, client, refusals, yes=yes):
            raise typer.Exit(refusals.exit_code)
        with session.audited("failed forget", str(chosen)) as deed:
            progress = Progress("deleted")
            for name_of_queue, jobs in _by_queue(_chosen_jobs(chosen, client, refusals, as_json=json)):
                for job_id, answer in zip(jobs, client.forget(jobs, queue=name_of_queue), strict=True):
                    _print_outcome(job_id, name_of_queue, answer, as_json=json)
                    done[name_of_queue] += answer == "forgotten"
                progress.tell(done.total())
            deed.outcome = f"{done.total()} deleted"
    _note_total(done, "deleted")
    _note_nothing(done, refusals)
    raise typer.Exit(refusals.exit_code)


def flush(context: typer.Context, queue: OfQueues = None, yes: Yes = False, json: Json = False) -> None:
    """Delete all failed jobs for good, in all queues or in --queue.

    delayq failed flush --queue orders --yes
    """
    _delete_old(context, Selection(queue=queue), "0s", yes=yes, as_json=json)


def prune(
    context: typer.Context,
    older: Annotated[
        str,
        typer.Option(
            "--older", metavar="DURATION", help="Delete jobs that failed longer ago than this: 30d.", show_default=False
        ),
    ],
    queue: OfQueues = None,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Delete jobs that failed long ago, in all queues or in --queue.

    delayq failed prune --older 30d --yes
    """
    duration_ms(older, field="older")
    _delete_old(context, Selection(queue=queue, until=older), older, yes=yes, as_json=json)


def _delete_old(context: typer.Context, chosen: Selection, older: str, *, yes: bool, as_json: bool) -> None:
    """Delete jobs that failed longer ago than `older`, queue by queue."""
    session, refusals = session_of(context), Refusals()
    done: Counter[str] = Counter()
    with session.client() as client:
        queues = named_queues(client, chosen.queue) or client.queues()
        if not _may_delete(chosen, client, refusals, yes=yes):
            raise typer.Exit(refusals.exit_code)
        with session.audited("failed prune" if chosen.until else "failed flush", str(chosen)) as deed:
            for queue in queues:
                try:
                    done[queue] = client.prune_failed(queue, older=older, progress=Progress(f"deleted in {queue}").tell)
                except CallRefused as error:
                    refusals.tell(error)
            deed.outcome = f"{done.total()} deleted"
    for queue, deleted in done.items():
        if as_json:
            print_json(DeletedShape(queue, deleted))
        elif deleted:
            print_text(f"{queue}  {several(deleted, 'job')} deleted")
    _note_total(done, "deleted")
    _note_nothing(done, refusals)
    raise typer.Exit(refusals.exit_code)


def _may_delete(chosen: Selection, client: DelayQ, refusals: Refusals, *, yes: bool) -> bool:
    """Unless `yes` is set, ask for confirmation and show the number of jobs by queue.

    Return False if no job matches. With `yes`, return True without a count. Raises typer.Abort if the answer is no.
    """
    if yes:
        return True
    counts = chosen.counts(client, refusals)
    if not counts:
        if not refusals.exit_code:
            print_note(NOTHING)
        return False
    confirm(f"Delete {several(sum(counts.values()), 'failed job')} ({spread(counts)})", yes=False)
    return True


def _chosen_jobs(chosen: Selection, client: DelayQ, refusals: Refusals, *, as_json: bool) -> Iterator[JobInfo]:
    """Yield the selected jobs. An id that is invalid or unknown, or whose job has not failed, becomes a refusal."""
    if not chosen.ids:
        for job in found_jobs(client, chosen.search(client, newest_first=False), refusals):
            try:
                check_id(job.id)
            except InvalidInput as error:
                refusals.tell(error)
            else:
                yield job
        return
    queues = named_queues(client, chosen.queue)
    for job_id in dict.fromkeys(chosen.ids):
        try:
            yield client.find_failed(job_id, queues=queues)
        except (JobNotFound, Conflict, InvalidInput) as error:
            refusals.tell(error)
            if as_json:
                print_refusal(error, job_id, only_queue(queues))


def _by_queue(jobs: Iterator[JobInfo]) -> Iterator[tuple[str, list[str]]]:
    """Yield (queue, ids) for each call of `forget`. All ids of one call belong to the same queue."""
    while batch := list(islice(jobs, FORGET_AT_A_TIME)):
        for queue in dict.fromkeys(job.queue for job in batch):
            yield queue, [job.id for job in batch if job.queue == queue]


def _print_retried(ref: JobRef, *, as_json: bool) -> None:
    _print_outcome(ref.id, ref.queue, ref.outcome, as_json=as_json)


def _print_outcome(job_id: str, queue: str, outcome: Answer, *, as_json: bool) -> None:
    if as_json:
        print_json(OutcomeShape(job_id, queue, outcome))
    else:
        print_text(f"{job_id}  {outcome} in queue {queue}")


def _note_total(done: Counter[str], deed: str) -> None:
    if done.total():
        print_note(f"{several(done.total(), 'job')} {deed}: {spread(done)}.")


def _note_nothing(done: Counter[str], refusals: Refusals) -> None:
    if not done.total() and not refusals.exit_code:
        print_note(NOTHING)
