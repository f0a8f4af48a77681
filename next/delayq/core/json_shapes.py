"""The JSON of jobs and queues, as the command line prints it and HTTP answers it."""

from typing import Any

from delayq.core.envelope import ABSENT
from delayq.core.failure_groups import FailedGroup
from delayq.core.states import Answer, State
from delayq.core.times import format_instant
from delayq.core.views import Control, JobInfo, QueueStats, QueueView, Upcoming, WorkerInfo


def of_reference(
    *, id: str, name: str, queue: str, state: State, due_ms: int | None, outcome: Answer
) -> dict[str, Any]:
    """Return the shape of an answer to schedule, reschedule, run_now, retry. `name`: '' = it is not known here."""
    known = {"name": name} if name else {}
    return {"id": id, **known, "queue": queue, "state": state, **_time("due", due_ms), "outcome": outcome}


def of_job(job: JobInfo) -> dict[str, Any]:
    """Return the shape of a job in a list."""
    envelope = job.envelope
    return {
        "id": job.id,
        "name": job.name,
        "queue": job.queue,
        "state": job.state,
        **_time("due", job.due_ms),
        "attempts": job.attempts,
        "tries": envelope.tries if envelope else None,
        "data": job.data,
        "tags": (envelope.tags if envelope else None) or [],
        "encrypted": envelope is not None and envelope.encrypted is not ABSENT,
        **_time("created", envelope.created_ms if envelope else None),
        **_time("failed", job.failed_ms),
        **_time("forget", job.forget_ms),
    }


def of_job_in_full(job: JobInfo) -> dict[str, Any]:
    """Return the shape of everything that is known about a job."""
    envelope = job.envelope
    return {
        **of_job(job),
        "error": job.failure,
        "result": job.result,
        "retention_ms": envelope.retention_ms if envelope else None,
        "timeout_ms": envelope.timeout_ms if envelope else None,
        **_time("deadline", envelope.deadline_ms if envelope else None),
        "unique": envelope.unique if envelope else None,
        "headers": (envelope.headers if envelope else None) or {},
        "recoveries": job.recoveries,
        "entry": job.entry or None,
        "consumer": job.consumer or None,
        "idle_ms": job.idle_ms,
        **_time("cancel_asked", job.cancel_asked_ms),
        "progress": job.progress,
    }


def of_failed_job(job: JobInfo) -> dict[str, Any]:
    """Return the shape of a failed job in a list: with its error."""
    return {**of_job(job), "error": job.failure}


def of_failed_group(group: FailedGroup) -> dict[str, Any]:
    """Return the shape of a group of failed jobs; `sample` is the job that failed last."""
    return {
        "signature": group.signature,
        "name": group.name,
        "type": group.type,
        "message": group.message,
        "count": group.count,
        **_time("first", group.first_ms),
        **_time("last", group.last_ms),
        "queues": group.queues,
        "sample": {"id": group.sample_id, "queue": group.sample_queue},
    }


def of_stats(stats: QueueStats) -> dict[str, Any]:
    """Return the shape of the counts of a queue, with an error only when it could not be read."""
    shape = {
        "queue": stats.queue,
        "scheduled": stats.scheduled,
        "ready": stats.ready,
        "reserved": stats.reserved,
        "failed": stats.failed,
        "completed": stats.completed,
        "paused": stats.paused,
        "overdue_oldest_ms": stats.overdue_oldest_ms,
    }
    return {**shape, "error": stats.error} if stats.error else shape


def of_pause(queue: str, until_ms: int | None) -> dict[str, Any]:
    """Return the shape of the answer to pause and resume. `paused_until_ms`: null = not paused, 0 = until resumed."""
    return {"queue": queue, "paused": until_ms is not None, **_end("paused_until", until_ms)}


def of_control(control: Control) -> dict[str, Any]:
    """Return the shape of what holds for all workers. Ends are null = not in force, 0 = until they are ended."""
    return {
        "paused": control.paused_until_ms is not None,
        **_end("paused_until", control.paused_until_ms),
        "paused_reason": control.paused_reason,
        "maintenance": control.maintenance_until_ms is not None,
        **_end("maintenance_until", control.maintenance_until_ms),
        **_time("maintenance_since", control.maintenance_since_ms),
        "reason": control.reason,
        **_time("restart", control.restart_ms),
    }


def of_queue_view(view: QueueView) -> dict[str, Any]:
    """Return the shape of what a queue keeps for itself."""
    return {
        "queue": view.queue,
        "lease_ms": view.lease_ms,
        "shards": view.shards,
        "paused": view.paused_until_ms is not None,
        **_end("paused_until", view.paused_until_ms),
        "holds": view.holds,
    }


def of_worker(worker: WorkerInfo) -> dict[str, Any]:
    """Return the shape of a child process of a worker and what it says of itself."""
    return {"name": worker.name, "queues": worker.queues, **worker.about}


def of_upcoming(upcoming: Upcoming) -> dict[str, Any]:
    """Return the shape of the jobs that fall due: `counts[n]` in the n-th span from `now_ms` on."""
    return {
        "queue": upcoming.queue,
        **_time("now", upcoming.now_ms),
        "span_ms": upcoming.span_ms,
        "overdue": upcoming.overdue,
        "counts": upcoming.counts,
        "later": upcoming.later,
    }


def _time(name: str, ms: int | None) -> dict[str, Any]:
    """Return a time twice: as epoch ms, and for people."""
    return {f"{name}_ms": ms, name: None if ms is None else format_instant(ms)}


def _end(name: str, ms: int | None) -> dict[str, Any]:
    """Return an end of which 0 means that there is none."""
    return {f"{name}_ms": ms, name: format_instant(ms) if ms else None}
