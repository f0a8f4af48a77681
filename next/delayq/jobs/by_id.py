"""Finds and cancels jobs of one job class or function by id.

The declaration of the job, the routes and the settings determine the connection and the queue. If this queue does not
have the id, the other queues of the connection are searched, so that a wrong queue is not mistaken for an unknown job.
"""

from delayq.core.states import Answer
from delayq.core.views import JobInfo
from delayq.jobs.options import JobOptions
from delayq.manager import Connection, current_manager


def _destination(name: str, options: JobOptions) -> tuple[Connection, str]:
    """Return the connection and the queue to which the jobs of this name go now."""
    return current_manager().destination(name, queue=options.queue, connection=options.connection)


def cancel_job(name: str, options: JobOptions, job_id: str, *, running: bool) -> Answer:
    """Cancel a job, and return the answer. `running`: True = ask the job to stop if a worker has it.

    Raises FoundElsewhere if only another queue has the id, or if there are too many other queues to search.
    """
    connection, queue = _destination(name, options)
    answer = connection.client.cancel(job_id, queue=queue, running=running)
    if answer == "unknown":
        connection.client.look_elsewhere(job_id, queue=queue)
    return answer


async def acancel_job(name: str, options: JobOptions, job_id: str, *, running: bool) -> Answer:
    """Do the same as `cancel_job`, in asyncio."""
    connection, queue = _destination(name, options)
    answer = await connection.aclient.cancel(job_id, queue=queue, running=running)
    if answer == "unknown":
        await connection.aclient.look_elsewhere(job_id, queue=queue)
    return answer


def find_job(name: str, options: JobOptions, job_id: str) -> JobInfo | None:
    """Return what is known about a job, or None if no queue has the id.

    Raises FoundElsewhere if only another queue has the id, or if there are too many other queues to search.
    """
    connection, queue = _destination(name, options)
    info = connection.client.get(job_id, queue=queue)
    if info is None:
        connection.client.look_elsewhere(job_id, queue=queue)
    return info


async def afind_job(name: str, options: JobOptions, job_id: str) -> JobInfo | None:
    """Do the same as `find_job`, in asyncio."""
    connection, queue = _destination(name, options)
    info = await connection.aclient.get(job_id, queue=queue)
    if info is None:
        await connection.aclient.look_elsewhere(job_id, queue=queue)
    return info
