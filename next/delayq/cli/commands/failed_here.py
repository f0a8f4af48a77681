"""`failed retry --here`: one failed job runs in this process, where a debugger reaches it."""

import msgspec
import typer

from delayq.cli.application import name_of_application, prepare_application
from delayq.cli.output import print_json, print_note, print_text
from delayq.cli.selection import Selection
from delayq.cli.session import CliSession
from delayq.client import DelayQ
from delayq.core.errors import Conflict, InvalidInput, PayloadLost
from delayq.core.outcome import Done, GiveUp
from delayq.core.views import JobInfo
from delayq.jobs.application import load_application
from delayq.jobs.local_run import Ran, run


def run_here(session: CliSession, chosen: Selection, *, app: str | None, as_json: bool) -> None:
    """Run the job once. When it is done it is dropped from the failed jobs; otherwise it stays as it is.

    Raises what the handler raises, so that a debugger stops there, typer.Exit when the job asks to run again,
    and Conflict when another program has changed the job meanwhile.
    """
    settings = session.with_given()
    load_application(name_of_application(app, settings))
    settings = prepare_application(session, settings)
    (job_id,) = chosen.ids
    with DelayQ(settings=settings) as client, session.audited("failed retry --here", job_id) as deed:
        job = chosen.find(client, job_id)
        ran = _run(job)
        if isinstance(ran.outcome, Done):
            _drop(client, job)
            deed.outcome = "done"
        else:
            deed.outcome = "failed again" if isinstance(ran.outcome, GiveUp) else "asked to run again"
            print_note(f"The job {job.id!r} {deed.outcome}, and stays among the failed jobs.")
    if isinstance(ran.outcome, GiveUp):
        raise ran.outcome.error
    if not isinstance(ran.outcome, Done):
        raise typer.Exit(1)
    if as_json:
        print_json({"id": job.id, "queue": job.queue, "outcome": "done"})
    else:
        print_text(f"{job.id}  done in queue {job.queue}")


def _run(job: JobInfo) -> Ran:
    if job.is_lost:
        raise PayloadLost(f"The payload of the job {job.id!r} is lost, so there is nothing to run.", hint="Forget it.")
    try:
        return run(job.raw)
    except msgspec.ValidationError as error:
        raise InvalidInput(
            f"The payload of the job {job.id!r} does not fit {job.name!r}: {error}.",
            hint=f"Retry it with another payload: `delayq failed retry {job.id} --data JSON`.",
            field="data",
        ) from None


def _drop(client: DelayQ, job: JobInfo) -> None:
    (answer,) = client.forget([job.id], queue=job.queue)
    if answer != "forgotten":
        raise Conflict(
            f"The job {job.id!r} is done here, but it is no longer among the failed jobs: {answer}.",
            hint=f"It may run again: `delayq show {job.id} --queue {job.queue}`.",
        )
