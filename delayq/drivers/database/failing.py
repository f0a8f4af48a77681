"""Failed jobs as rows of Laravel's `failed_jobs`, there and back.

`uuid` is the job's id; an id that a job of another queue has failed with already gets its queue behind it, and one of
another connection its connection and queue. `exception`
is text, as in Laravel, for people. `connection` is what Laravel calls the connection, for `artisan queue:retry`. What
only delayq knows stands in a table of its own, and is missing where PHP wrote.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from sqlalchemy import Connection, Select, Table, delete, insert, select, update

from delayq.core.failure import Failure
from delayq.drivers.database.tables import about_of
from delayq.drivers.failed_store import FailedJob
from delayq.drivers.laravel.payload import label

LONGEST_ID = 255


class _About(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the column `about` holds. `raw`: the payload in base64, where it is no text a database takes."""

    id: str
    name: str
    failure: Failure
    raw: str = ""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_About).decode


class Failing:
    """Writes rows in a transaction of the caller's. `laravel`: what Laravel calls the connection; '' = the same."""

    def __init__(self, failed: Table, laravel: str = "") -> None:
        self._failed = failed
        self._about = about_of(failed)
        self._laravel = laravel

    def write(self, connection: Connection, job: FailedJob) -> None:
        """One row; that of the same job, if there is one, is replaced."""
        rows, uuid = self._failed.c, job.id
        there = self._row(connection, uuid)
        if there is not None and there.own_connection not in (None, job.connection):
            uuid = in_connection(job.id, job.connection, job.queue)
            there = self._row(connection, uuid)
        elif there is not None and there.queue != job.queue:
            uuid = elsewhere(job.id, job.queue)
            there = self._row(connection, uuid)
        theirs, ours = _columns_of(job)
        theirs["connection"] = self._laravel or job.connection
        if there is None:
            made = connection.execute(insert(self._failed).values(uuid=uuid, **theirs))
            number = made.inserted_primary_key[0] if made.inserted_primary_key else None
        else:
            number = there.id
            connection.execute(update(self._failed).where(rows.uuid == uuid).values(**theirs))
        connection.execute(delete(self._about).where(self._about.c.number == number))
        connection.execute(insert(self._about).values(number=number, uuid=uuid, **ours))

    def _row(self, connection: Connection, uuid: str) -> Any:
        """Return the row of that `uuid`; its `own_connection` is None where PHP wrote it."""
        return connection.execute(failed_rows(self._failed).where(self._failed.c.uuid == uuid)).first()


def failed_rows(failed: Table) -> Select[Any]:
    """Select failed jobs with what delayq knows of them, as `failed_job` reads them."""
    about = about_of(failed)
    known = (
        about.c.uuid.label("about_uuid"),
        about.c.connection.label("own_connection"),
        about.c.failed_ms,
        about.c.about,
    )
    return select(failed, *known).join_from(failed, about, about.c.number == failed.c.id, isouter=True)


def remove_rows(connection: Connection, failed: Table, numbers: Sequence[int]) -> int:
    """Remove these rows of `failed`, with what delayq knows of them; how many there were."""
    about = about_of(failed)
    connection.execute(delete(about).where(about.c.number.in_(numbers)))
    return int(connection.execute(delete(failed).where(failed.c.id.in_(numbers))).rowcount)


def elsewhere(job_id: str, queue: str) -> str:
    """The `uuid` of a job whose id another queue's failed job has."""
    return f"{job_id}@{queue}"[:LONGEST_ID]


def in_connection(job_id: str, connection: str, queue: str) -> str:
    """Return the `uuid` of a job whose id a failed job of another connection has."""
    return f"{job_id[: LONGEST_ID // 3]}@{connection}/{queue}"[:LONGEST_ID]


def _columns_of(job: FailedJob) -> tuple[dict[str, Any], dict[str, Any]]:
    """Laravel's columns of a failed job, without `uuid` and `connection`; and delayq's own."""
    text, raw = _text(job.payload)
    at = datetime.fromtimestamp(max(1, job.failed_ms // 1000), UTC)  # MySQL's timestamps begin a second later
    theirs = {
        "queue": job.queue,
        "payload": text,
        "exception": _without_nul(f"{job.failure.type}: {job.failure.message}\n{job.failure.traceback}".rstrip()),
        "failed_at": at.replace(tzinfo=None),
    }
    about = _encode(_About(job.id, job.name, job.failure, raw)).decode()
    return theirs, {"connection": job.connection, "failed_ms": job.failed_ms, "about": about}


def failed_job(row: Any) -> FailedJob:
    """A row of `failed_rows` as a failed job; PHP may have written it."""
    raw = row.payload.encode("utf-8", "surrogateescape")
    ours = is_ours(row)
    about = _about(row.about) if ours else None
    failed_ms = row.failed_ms
    if not ours:
        failed_ms = int(row.failed_at.replace(tzinfo=UTC).timestamp() * 1000)
    if about is None:
        about = _About(row.uuid, label(raw)[1], failure_of(row.exception, failed_ms))
    return FailedJob(
        id=about.id if row.uuid == elsewhere(about.id, row.queue) else row.uuid,
        connection=row.own_connection if ours else row.connection,
        queue=row.queue,
        name=about.name,
        payload=base64.b64decode(about.raw) if about.raw else raw,
        failure=about.failure,
        failed_ms=failed_ms,
    )


def is_ours(row: Any) -> bool:
    """Whether delayq wrote this row of `failed_rows`, and not PHP."""
    return bool(row.about_uuid == row.uuid)


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


def _about(text: str) -> _About | None:
    """What delayq wrote; None where somebody changed it."""
    try:
        about = _decode(text)
        base64.b64decode(about.raw, validate=True)
    except (msgspec.MsgspecError, UnicodeError, RecursionError, binascii.Error):
        return None
    return about
