"""A failed job as one JSON record, and its place among the others: by time, then by id.

    {"id": "…", "connection": "…", "queue": "…", "name": "…", "payload": "…", "failure": {…}, "failed_ms": …}

`payload` is text where the bytes are UTF-8, which every envelope is; others stand in base64, and `encoding` says so.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final, NamedTuple

import msgspec

from delayq.core.errors import BackendError, InvalidInput
from delayq.core.failure import Failure
from delayq.core.shown import shown
from delayq.drivers.failed_store import FailedJob

BASE64: Final = "base64"


class _Record(msgspec.Struct, frozen=True, omit_defaults=True):
    id: str
    connection: str
    queue: str
    name: str
    payload: str
    failure: Failure
    failed_ms: int
    encoding: str = ""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Record).decode


class Mark(NamedTuple):
    """Where a page ended: the last job shown."""

    failed_ms: int
    id: str

    def cursor(self) -> str:
        """As `page` answers it."""
        return f"{self.failed_ms}:{self.id}"


START: Final = Mark(-1, "")


def mark_of(cursor: str) -> Mark:
    """Where the next page begins. Raises `InvalidInput` for what no page answered."""
    if not cursor:
        return START
    at, colon, job_id = cursor.partition(":")
    if not colon or not (at.isascii() and at.isdigit()):
        raise InvalidInput(f"{shown(cursor)} is no cursor.", hint="Use the one that the page before answered.")
    return Mark(int(at), job_id)


def encode(job: FailedJob) -> bytes:
    """The record of a job."""
    try:
        payload, encoding = job.payload.decode("utf-8"), ""
    except UnicodeDecodeError:
        payload, encoding = base64.b64encode(job.payload).decode("ascii"), BASE64
    return _encode(_Record(job.id, job.connection, job.queue, job.name, payload, job.failure, job.failed_ms, encoding))


def decode(raw: bytes, where: str) -> FailedJob:
    """The job of a record. Raises `BackendError` for what is none; `where` names it for people."""
    try:
        record = _decode(raw)
        payload = (
            base64.b64decode(record.payload, validate=True) if record.encoding == BASE64 else record.payload.encode()
        )
    except (msgspec.MsgspecError, UnicodeError, binascii.Error, RecursionError) as error:
        raise BackendError(
            f"{where} is no record of a failed job: {error}.", hint="Move it away; the others are read without it."
        ) from error
    return FailedJob(
        id=record.id,
        connection=record.connection,
        queue=record.queue,
        name=record.name,
        payload=payload,
        failure=record.failure,
        failed_ms=record.failed_ms,
    )
