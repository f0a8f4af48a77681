"""A job as its row holds it: Laravel's payload, with what only an envelope has in its member `delayq`.

What PHP wrote goes back as it came. The count of attempts stands in a column, not in the payload.
"""

from __future__ import annotations

from typing import NamedTuple

from delayq.core.errors import BadEnvelope
from delayq.drivers.laravel.payload import label, read_payload
from delayq.drivers.laravel.writing import payload_of


class Read(NamedTuple):
    """A row as a job: its id, its name and its envelope.

    Of what is no job, what can be said of it, its bytes, and why it is none.
    """

    id: str
    name: str
    envelope: bytes
    unreadable: str = ""


def written(raw: bytes) -> str:
    """The payload of an envelope. Raises `BadEnvelope`."""
    return payload_of(raw, attempts=None).decode()


def read(text: str, *, queue: str, attempts: int) -> Read:
    """The job of a payload. Raises `BadEnvelope` for one that cannot be run here."""
    found = read_payload(text.encode("utf-8", "surrogateescape"))
    return Read(found.id, found.name, found.envelope(queue=queue, attempts=attempts))


def read_any(text: str, *, queue: str, attempts: int) -> Read:
    """As `read`; what cannot be run here is said as far as it can be read."""
    try:
        return read(text, queue=queue, attempts=attempts)
    except BadEnvelope as error:
        raw = text.encode("utf-8", "surrogateescape")
        return Read(*label(raw), raw, unreadable=str(error))
