"""One row of an outbox, as its writer makes it. The database adds its number and the time."""

from __future__ import annotations

from typing import Final, TypedDict

from delayq.core.spec import Prepared
from delayq.core.states import OnConflict

TABLE: Final = "delayq_outbox"


class OutboxRow(TypedDict):
    """What is written. `delay_ms` counts from the time the database notes; `due_ms`, where given, goes before it."""

    id: str
    name: str
    queue: str
    connection: str
    on_conflict: str
    envelope: str
    delay_ms: int
    due_ms: int | None


COLUMNS: Final = tuple(OutboxRow.__annotations__)


def row_of(job: Prepared, on_conflict: OnConflict, to: str) -> OutboxRow:
    """The row of a job that the relay is to send over the connection `to`."""
    relative = job.when.startswith("+")
    return OutboxRow(
        id=job.id,
        name=job.name,
        queue=job.queue,
        connection=to,
        on_conflict=on_conflict.value,
        envelope=job.envelope.decode(),
        delay_ms=int(job.when) if relative else 0,
        due_ms=None if relative else int(job.when),
    )
