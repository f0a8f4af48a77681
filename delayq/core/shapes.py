"""What `--json` prints and HTTP answers: one function for each kind of answer. Others' programs lean on these names.

Times come twice: `…_ms` as epoch milliseconds for programs, without the suffix as RFC 3339 for people.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from delayq.core import failure as failures
from delayq.core.audit import AuditEntry
from delayq.core.batches import BatchInfo
from delayq.core.control import Control
from delayq.core.diagnosis import Finding
from delayq.core.failure_groups import FailureGroup
from delayq.core.job_types import JobType, JobTypes
from delayq.core.progress import Progress
from delayq.core.sealing import HIDDEN
from delayq.core.views import JobInfo, JobRef, OrderedWorker, QueueStats, QueueView, Upcoming, WorkerInfo
from delayq.core.when import format_instant
from delayq.core.why import Reason

Shape = dict[str, Any]


def scheduled(ref: JobRef) -> Shape:
    """The answer to schedule, reschedule, run-now and retry; without `name` where no answer of Redis tells it.

    `connection` is there where a failover had a choice: the one that took the job.
    """
    return {
        "id": ref.id,
        **({"name": ref.name} if ref.name else {}),
        "queue": ref.queue,
        "state": ref.state,
        **at("due", ref.due_ms),
        "outcome": ref.outcome,
        **({"connection": ref.connection} if ref.connection else {}),
    }


def job(info: JobInfo) -> Shape:
    """One job as `list` knows it. `data` are the bytes that were scheduled; null when the envelope is unreadable.

    Of an encrypted job it is only said that they are: what is printed is often kept.
    """
    envelope = info.envelope
    return {
        "id": info.id,
        "name": info.name or None,
        "queue": info.queue,
        "state": info.state,
        **at("due", info.due_ms),
        "attempts": info.attempts,
        "tries": envelope.tries if envelope else None,
        "data": payload(info),
        "encrypted": info.encrypted,
        **at("created", info.created_ms),
        **at("failed", info.failed_ms),
        **at("forget", info.forget_ms),
    }


def job_in_full(info: JobInfo) -> Shape:
    """One job as `show` knows it."""
    envelope = info.envelope
    return {
        **job(info),
        "error": failures.as_dict(info.failure) if info.failure else None,
        "result": info.result,
        "retention_ms": envelope.retention_ms if envelope else None,
        "timeout_ms": envelope.timeout_ms if envelope else None,
        **at("deadline", envelope.deadline_ms if envelope else None),
        "unique": envelope.unique if envelope else None,
        "headers": (envelope.headers or {}) if envelope else {},
        "tags": (envelope.tags or []) if envelope else [],
        "recoveries": info.recoveries,
        "entry": info.entry or None,
        "consumer": info.consumer or None,
        "idle_ms": info.idle_ms,
        **at("cancel_asked", info.cancel_asked_ms),
        "progress": told(info.progress) if info.progress else None,
    }


def failure_group(group: FailureGroup) -> Shape:
    """One group of failed jobs. `sample` is the id and the queue of the job that failed last, and its message."""
    sample = group.sample
    return {
        "signature": group.signature,
        "name": group.name or None,
        "type": group.type,
        "message": group.message,
        "count": group.count,
        **at("first", group.first_ms),
        **at("last", group.last_ms),
        "queues": list(group.queues),
        "sample": {
            "id": sample.id,
            "queue": sample.queue,
            "message": sample.failure.message if sample.failure else "",
        },
    }


def told(progress: Progress) -> Shape:
    """What a running job told last of itself."""
    return {
        "done": progress.done,
        "total": progress.total,
        "note": progress.note,
        "partial": progress.partial,
        **at("at", progress.at_ms),
    }


def payload(info: JobInfo) -> msgspec.Raw:
    """The payload's own bytes, or that they are encrypted; `null` when the envelope cannot be read."""
    if info.encrypted:
        return msgspec.Raw(msgspec.json.encode(HIDDEN))
    return info.envelope.data if info.envelope else msgspec.Raw(b"null")


def answered(job_id: str, queue: str, outcome: str) -> Shape:
    """The answer to cancel and forget."""
    return {"id": job_id, "queue": queue, "outcome": outcome}


def batch(info: BatchInfo) -> Shape:
    """One batch as it stands."""
    return {
        "id": info.id,
        "name": info.name,
        "state": info.state,
        "total": info.total,
        "pending": info.pending,
        "done": info.done,
        "failed": info.failed,
        "skipped": info.skipped,
        "progress": info.progress,
        "allow_failures": info.allow_failures,
        "owner": info.owner,
        **at("created", info.created_ms),
        **at("cancelled", info.cancelled_ms),
        **at("finished", info.finished_ms),
    }


def queue(stats: QueueStats) -> Shape:
    """One queue in `stats`."""
    return {
        "queue": stats.queue,
        "scheduled": stats.scheduled,
        "ready": stats.ready,
        "reserved": stats.reserved,
        "failed": stats.failed,
        "completed": stats.completed,
        "paused": stats.paused,
        "overdue_oldest_ms": stats.overdue_oldest_ms,
    }


def queue_view(view: QueueView, durability: str) -> Shape:
    """What a queue keeps for itself. `jobs_may_lie_by`: earlier numbers of shards by which jobs may lie still."""
    return {
        "queue": view.queue,
        "lease_ms": view.lease_ms,
        "durability": durability,
        "paused": view.paused_until_ms is not None,
        "shards": view.shards,
        "since_ms": view.since_ms,
        "jobs_may_lie_by": view.before,
        "held": [shard._asdict() for shard in view.held],
    }


def upcoming(histogram: Upcoming) -> Shape:
    """When jobs of one queue fall due: `counts[n]` of them within the n-th span of `span_ms` from `now_ms` on."""
    return {
        "queue": histogram.queue,
        **at("now", histogram.now_ms),
        "span_ms": histogram.span_ms,
        "overdue": histogram.overdue,
        "counts": histogram.counts,
        "later": histogram.later,
    }


def job_types(found: JobTypes, types: Iterable[JobType]) -> Shape:
    """How the jobs of each name ran; `queue` is null for all queues together."""
    return {
        "queue": found.queue or None,
        **at("since", found.since_ms),
        **at("now", found.now_ms),
        "job_types": [_job_type(found, one) for one in types],
    }


def _job_type(found: JobTypes, one: JobType) -> Shape:
    def rounded(number: float | None, digits: int = 3) -> float | None:
        return None if number is None else round(number, digits)

    return {
        "name": one.name,
        "queues": list(one.queues),
        "attempts": one.attempts,
        "per_minute": rounded(found.per_minute(one)),
        "done": one.done,
        "retried": one.retried,
        "failed": one.failed,
        "other": one.other,
        "failure_rate": rounded(one.failure_rate, 6),
        "p50_ms": rounded(one.percentile(0.5)),
        "p99_ms": rounded(one.percentile(0.99)),
        "mean_ms": rounded(one.mean_ms),
        "took_ms": rounded(one.took_ms),
    }


def worker(info: WorkerInfo) -> Shape:
    """A worker and what it says of itself."""
    return {"name": info.name, "queues": info.queues, **info.about}


def ordered(told: OrderedWorker) -> Shape:
    """A worker that was told something, and the processes it has."""
    return {"worker": told.name, "order": str(told.order), "processes": [one.name for one in told.processes]}


def finding(found: Finding) -> Shape:
    """One finding of `doctor`."""
    return {
        "code": found.code,
        "level": found.level,
        "where": found.where,
        "what": found.what,
        "next": found.next,
    }


def why(info: JobInfo, reasons: Iterable[Reason]) -> Shape:
    """Why a job is where it is, the heaviest reason first."""
    told = [{"code": one.code, "weight": one.weight, "what": one.what, "next": one.next} for one in reasons]
    return {"id": info.id, "name": info.name, "queue": info.queue, "state": info.state, "reasons": told}


def paused(name: str, until_ms: int | None) -> Shape:
    """The answer to pause and resume: `paused_until_ms` 0 means until resumed, null not paused."""
    return {"queue": name, "paused": until_ms is not None, "paused_until_ms": until_ms}


def control(switches: Control) -> Shape:
    """What holds for all workers; of each until: 0 = until it is ended, null = it is not so."""
    return {
        "paused": switches.paused,
        "paused_until_ms": switches.paused_until_ms,
        "paused_reason": switches.paused_reason,
        "maintenance": switches.maintenance,
        "maintenance_until_ms": switches.maintenance_until_ms,
        **at("maintenance_since", switches.maintenance_since_ms),
        "reason": switches.reason,
        **at("restart", switches.restart_ms),
    }


def deed(entry: AuditEntry) -> Shape:
    """One line of the audit log."""
    return {
        "id": entry.id,
        **at("at", entry.at_ms),
        "who": entry.who,
        "door": entry.door,
        "what": entry.what,
        "on": entry.target,
        "detail": entry.detail,
        "reason": entry.reason,
        "outcome": entry.outcome,
        "refusal": entry.refusal,
    }


def at(name: str, ms: int | None) -> Shape:
    """A point in time, both ways."""
    return {f"{name}_ms": ms, name: None if ms is None else format_instant(ms)}
