"""`run-now --waiting-for-code`: after a deployment, makes the jobs due that waited for the new release."""

from collections import Counter
from collections.abc import Callable

import typer

from delayq.cli.output import print_note
from delayq.cli.progress import Progress
from delayq.cli.selection import Refusals, found_jobs, named_queues, spread
from delayq.cli.session import CliSession
from delayq.cli.unconfirmed import unsure_change
from delayq.client import JobRef
from delayq.core.display import several
from delayq.core.errors import CallRefused, Conflict, InvalidInput, JobNotFound, NotConfirmed
from delayq.core.job_search import JobSearch


def run_waiting(session: CliSession, queue: str | None, tell: Callable[[JobRef], None], *, as_json: bool) -> None:
    """Make all jobs that wait for a newer release due now, in the queue of --queue or in all queues.

    Skip jobs that a worker or another program has taken in the meantime. Raises typer.Exit, QueueNotFound.
    """
    refusals, progress = Refusals(), Progress("jobs made due")
    done: Counter[str] = Counter()
    with session.client() as client:
        search = JobSearch(queues=named_queues(client, None if queue is None else [queue]), waiting_for_code=True)
        where = ", ".join(search.queues or ["all queues"])
        with session.audited("run-now", f"jobs of {where} that wait for a newer release") as deed:
            # Find all jobs before the first change. In a paused or full queue, a changed job stays scheduled with a new
            # due time, so the search could otherwise find the job again and again.
            jobs = [(job.id, job.queue) for job in found_jobs(client, search, refusals)]
            try:
                for job_id, of_queue in jobs:
                    try:
                        with unsure_change(job_id, of_queue, tell, as_json=as_json):
                            tell(client.run_now(job_id, queue=of_queue))
                    except (JobNotFound, Conflict):
                        continue
                    except NotConfirmed as error:
                        refusals.tell(error)
                    except (InvalidInput, CallRefused) as error:
                        refusals.tell(error)
                        continue
                    done[of_queue] += 1
                    progress.tell(done.total())
            finally:
                deed.outcome = f"{done.total()} made due"
    if done:
        print_note(f"{several(done.total(), 'job')} made due: {spread(done)}.")
    elif not refusals.exit_code:
        print_note("No job waits for a newer release.")
    raise typer.Exit(refusals.exit_code)
