"""Failed jobs as rows of Laravel's `failed_jobs`, there and back.

`uuid` is the job's id; an id that a job of another queue has failed with already gets its queue behind it. `exception`
is text, as in Laravel, for people. What only delayq knows stands in columns of its own, and is missing where PHP wrote.
"""

from __future__ import annotations

import base64
import binascii
from datetime import UTC, datetime
from typing import Any

import msgspec
from sqlalchemy import Connection, Table, insert, select, update

from delayq.core.failure import Failure
from delayq.drivers.failed_store import FailedJob
from delayq.drivers.laravel.payload import label

LONGEST_ID = 255


class _About(msgspec.Struct, frozen=True, omit_defaults=True):
    """What `delayq_about` holds. `raw`: the payload in base64, where it is no text a database takes."""

    id: str
    name: str
    failure: Failure
    raw: str = ""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_About).decode


class Failing:
    """Writes into the table in somebody's transaction."""

    def __init__(self, failed: Table) -> None:
        self._failed = failed

    def write(self, connection: Connection, job: FailedJob) -> None:
        """One row; that of the same job, if there is one, is replaced."""
        rows, uuid = self._failed.c, job.id
        there = connection.execute(select(rows.queue).where(rows.uuid == uuid)).first()
        if there is not None and there.queue != job.queue:
            uuid = elsewhere(job.id, job.queue)
            there = connection.execute(select(rows.queue).where(rows.uuid == uuid)).first()
        if there is None:
            connection.execute(insert(self._failed).values(uuid=uuid, **columns_of(job)))
        else:
            connection.execute(update(self._failed).where(rows.uuid == uuid).values(**columns_of(job)))


def elsewhere(job_id: str, queue: str) -> str:
    """The `uuid` of a job whose id another queue's failed job has."""
    return f"{job_id}@{queue}"[:LONGEST_ID]


def columns_of(job: FailedJob) -> dict[str, Any]:
    """The columns of a failed job, but for its `uuid`."""
    text, raw = _text(job.payload)
    at = datetime.fromtimestamp(max(1, job.failed_ms // 1000), UTC)  # MySQL's timestamps begin a second later
    return {
        "connection": job.connection,
        "queue": job.queue,
        "payload": text,
        "exception": _without_nul(f"{job.failure.type}: {job.failure.message}\n{job.failure.traceback}".rstrip()),
        "failed_at": at.replace(tzinfo=None),
        "delayq_failed_ms": job.failed_ms,
        "delayq_about": _encode(_About(job.id, job.name, job.failure, raw)).decode(),
    }


def failed_job(row: Any) -> FailedJob:
    """A row as a failed job; PHP may have written it."""
    raw = row.payload.encode("utf-8", "surrogateescape")
    about = _about(row.delayq_about)
    failed_ms = row.delayq_failed_ms
    if failed_ms is None:
        failed_ms = int(row.failed_at.replace(tzinfo=UTC).timestamp() * 1000)
    if about is None:
        about = _About(row.uuid, label(raw)[1], failure_of(row.exception, failed_ms))
    return FailedJob(
        id=about.id if row.uuid == elsewhere(about.id, row.queue) else row.uuid,
        connection=row.connection,
        queue=row.queue,
        name=about.name,
        payload=base64.b64decode(about.raw) if about.raw else raw,
        failure=about.failure,
        failed_ms=failed_ms,
    )


def failure_of(text: str, failed_ms: int) -> Failure:
    """What PHP wrote of an exception: its class and message in the first line, where it was raised below."""
    first, _, rest = text.partition("\n")
    kind, colon, message = first.partition(": ")
    if not colon or " " in kind:
        kind, message = "Exception", first
    return Failure(type=kind, message=message, traceback=rest, at_ms=failed_ms)


def _text(payload: bytes) -> tuple[str, str]:
    """The payload as text, and in base64 where that is not all of it."""
    text = _without_nul(payload.decode("utf-8", "backslashreplace"))
    return text, "" if text.encode() == payload else base64.b64encode(payload).decode("ascii")


def _without_nul(text: str) -> str:
    """PostgreSQL keeps no text with the character NUL in it."""
    return text.replace("\0", "\\x00")


def _about(text: str | None) -> _About | None:
    """What delayq wrote; None where it did not, or somebody changed it."""
    if not text:
        return None
    try:
        about = _decode(text)
        base64.b64decode(about.raw, validate=True)
    except (msgspec.MsgspecError, UnicodeError, RecursionError, binascii.Error):
        return None
    return about
