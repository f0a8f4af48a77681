"""Operations on jobs of one class or function by id. Declaration and routes determine the queue and connection."""

from delayq.core.states import Answer
from delayq.core.views import JobInfo
from delayq.jobs.options import JobOptions
from delayq.manager import Connection, current_manager


def _destination(name: str, options: JobOptions) -> tuple[Connection, str]:
    return current_manager().destination(name, queue=options.queue, connection=options.connection)


def cancel_job(name: str, options: JobOptions, job_id: str, *, running: bool) -> Answer:
    """Cancel a job in the queue of its name. Raises FoundElsewhere if only another queue has a job with this id."""
    connection, queue = _destination(name, options)
    answer = connection.client.cancel(job_id, queue=queue, running=running)
    if answer == "unknown":
        connection.client.look_elsewhere(job_id, queue=queue)
    return answer


async def acancel_job(name: str, options: JobOptions, job_id: str, *, running: bool) -> Answer:
    """Cancel a job in an event loop; see `cancel_job`."""
    connection, queue = _destination(name, options)
    answer = await connection.aclient.cancel(job_id, queue=queue, running=running)
    if answer == "unknown":
        await connection.aclient.look_elsewhere(job_id, queue=queue)
    return answer


def find_job(name: str, options: JobOptions, job_id: str) -> JobInfo | None:
    """Return a job in the queue of its name, or None.

    Raises FoundElsewhere if only another queue has a job with this id.
    """
    connection, queue = _destination(name, options)
    info = connection.client.get(job_id, queue=queue)
    if info is None:
        connection.client.look_elsewhere(job_id, queue=queue)
    return info


async def afind_job(name: str, options: JobOptions, job_id: str) -> JobInfo | None:
    """Find a job in an event loop; see `find_job`."""
    connection, queue = _destination(name, options)
    info = await connection.aclient.get(job_id, queue=queue)
    if info is None:
        await connection.aclient.look_elsewhere(job_id, queue=queue)
    return info
