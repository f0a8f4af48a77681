"""Which rows of an outbox go together, and which must not go at all. Pure: rows in, a plan out.

A batch is what one script call takes: jobs of one queue over one connection that say the same about a taken id, in
the order of their rows. It is decided once, and written down before it is sent: sent again under its token, it must be
the same jobs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from delayq.core.errors import DelayqError, InvalidInput
from delayq.core.options import Options
from delayq.core.spec import Prepared, prepare_raw
from delayq.core.states import OnConflict
from delayq.redis.calls.produce import CHUNK, MAX_BYTES

LONGEST_MS: Final = 10 * 366 * 86_400_000

_TEXTS: Final = ("id", "name", "queue", "connection", "on_conflict", "envelope")
_NUMBERS: Final = ("delay_ms", "due_ms", "written_ms")
_MAY_LACK: Final = ("due_ms",)
_SURROGATE: Final = re.compile("[\ud800-\udfff]")

Known = Callable[[str], Options]
"""What the relay knows of a connection. Raises `DelayqError` for one it cannot send over."""


@dataclass(slots=True)
class Planned:
    """Rows of one batch. `rewritten`: those whose queue is forwarded, with the envelope that says so."""

    connection: str
    queue: str
    on_conflict: str
    numbers: list[int] = field(default_factory=list)
    rewritten: dict[int, str] = field(default_factory=dict)
    size: int = 0

    def takes(self, on_conflict: str, size: int) -> bool:
        """Whether one more belongs here: it says the same, and there is room."""
        room = len(self.numbers) < CHUNK and self.size + size <= MAX_BYTES
        return self.on_conflict == on_conflict and (room or not self.numbers)


def plan(rows: Iterable[Any], known: Known) -> tuple[list[Planned], dict[int, str]]:
    """The batches in the order of their first rows; and by number the rows that are refused, with the reason."""
    batches: list[Planned] = []
    latest: dict[tuple[str, str], Planned] = {}
    refused: dict[int, str] = {}
    for row in rows:
        try:
            check_columns(row)
            job = judged(row, known(row.connection))
        except (DelayqError, ValueError) as error:  # of JSON, of text that is no UTF-8, of an unknown `on_conflict`
            refused[row.seq] = str(error)
            continue
        place, size = (row.connection, job.queue), len(job.envelope)
        batch = latest.get(place)
        if batch is None or not batch.takes(row.on_conflict, size):
            batch = latest[place] = Planned(row.connection, job.queue, row.on_conflict)
            batches.append(batch)
        batch.numbers.append(row.seq)
        batch.size += size
        if job.queue != row.queue:
            batch.rewritten[row.seq] = job.envelope.decode()
    return batches, refused


def check_columns(row: Any) -> None:
    """Raises `InvalidInput` for a column that holds no text or no whole number where one belongs.

    SQLite keeps whatever it is given, and a table made by hand may take NULL.
    """
    for columns, kind, called in ((_TEXTS, str, "text"), (_NUMBERS, int, "whole number")):
        for column in columns:
            value = getattr(row, column)
            if not isinstance(value, kind) and not (value is None and column in _MAY_LACK):
                found = "NULL" if value is None else f"a {type(value).__name__}"
                raise InvalidInput(f"The row's {column} is {found}, not a {called}.")
            if isinstance(value, str) and _SURROGATE.search(value):
                raise InvalidInput(f"The row's {column} is no UTF-8.")


def judged(row: Any, options: Options) -> Prepared:
    """A row as a job. Raises `DelayqError` with the reason why it cannot be sent."""
    job = prepare_raw(row.envelope.encode(), options, row.queue)
    OnConflict(row.on_conflict)
    if job.id != row.id or job.name != row.name:
        raise InvalidInput(f"The row is called {row.name} {row.id}, its envelope {job.name} {job.id}.")
    when = row.delay_ms if row.due_ms is None else row.due_ms
    most = LONGEST_MS if row.due_ms is None else 1 << 53
    if not 0 <= when < most:
        raise InvalidInput(f"The row waits until {when} ms; that is no time a job can be due.")
    return job


def ready(rows: Sequence[Any]) -> list[Prepared]:
    """The jobs of a batch that was judged before. What has passed of a delay is told by the database (`age_ms`)."""
    jobs = []
    for row in rows:
        raw = row.envelope.encode()
        when = f"+{max(0, row.delay_ms - row.age_ms)}" if row.due_ms is None else str(row.due_ms)
        digest = prepare_raw(raw, _ANY, row.queue).digest
        jobs.append(Prepared(row.id, raw, when, digest, row.name, row.queue, True))
    return jobs


_ANY: Final = Options(max_payload=1 << 62)
"""Limits were looked at when the batch was made."""
