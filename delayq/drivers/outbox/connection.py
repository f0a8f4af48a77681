"""The connection that writes jobs to an outbox, in the database transaction they belong to.

    [connections.outbox]
    driver = "outbox"
    to = "default"                  the connection over which the relay sends them
    table = "delayq_outbox"

It knows no database: the rows are written in the session that the dispatch, or the block around it, names. A job is
there when the transaction commits, and a relay sends it (`delayq relay`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from delayq.core.errors import ConfigError, InvalidInput
from delayq.core.options import Options
from delayq.core.spec import Delay, JobSpec, Prepared, prepare, prepare_raw
from delayq.core.states import OnConflict, State
from delayq.core.views import Fate, JobRef
from delayq.drivers.outbox.row import TABLE, OutboxRow, row_of
from delayq.drivers.outbox.writing import Writer, writer_of
from delayq.drivers.within import session_at_hand
from delayq.settings.tables import ConnectionSettings


class OutboxConnection:
    """A `Connection` to a table. Raises `ConfigError` where no session is known, and what the database raises."""

    def __init__(self, name: str, options: Options, *, to: str, table: str) -> None:
        self.name = name
        self._options = options
        self._to = to
        self._table = table

    def schedule(self, spec: JobSpec, on_conflict: OnConflict) -> JobRef:
        """Write one row."""
        return self.schedule_many([spec], on_conflict)[0]

    def schedule_many(self, specs: Sequence[JobSpec], on_conflict: OnConflict) -> list[JobRef]:
        """Write a row for each, in one statement, once all are checked."""
        writer = self._writer()
        now_ms = writer.now_ms() if _timed(specs) else _local_ms()
        jobs = [_lasting(prepare(spec, self._options, now_ms, on_conflict)) for spec in specs]
        writer.write(self._rows(jobs, on_conflict))
        return [_ref(job) for job in jobs]

    def push_raw(self, envelope: bytes, *, queue: str | None = None, delay: Delay | None = None) -> JobRef:
        """Write the row of an envelope that is made already."""
        job = prepare_raw(envelope, self._options, queue, delay)
        self._writer().write(self._rows([job], OnConflict.KEEP))
        return _ref(job)

    async def aschedule(self, spec: JobSpec, on_conflict: OnConflict) -> JobRef:
        """As `schedule`."""
        return (await self.aschedule_many([spec], on_conflict))[0]

    async def aschedule_many(self, specs: Sequence[JobSpec], on_conflict: OnConflict) -> list[JobRef]:
        """As `schedule_many`."""
        writer = self._writer()
        now_ms = await writer.anow_ms() if _timed(specs) else _local_ms()
        jobs = [_lasting(prepare(spec, self._options, now_ms, on_conflict)) for spec in specs]
        await writer.awrite(self._rows(jobs, on_conflict))
        return [_ref(job) for job in jobs]

    async def apush_raw(self, envelope: bytes, *, queue: str | None = None, delay: Delay | None = None) -> JobRef:
        """As `push_raw`."""
        job = prepare_raw(envelope, self._options, queue, delay)
        await self._writer().awrite(self._rows([job], OnConflict.KEEP))
        return _ref(job)

    def close(self) -> None:
        """Nothing is open: sessions are their owner's."""

    async def aclose(self) -> None:
        """As `close`."""

    def _writer(self) -> Writer:
        return writer_of(session_at_hand(), self._table)

    def _rows(self, jobs: Sequence[Prepared], on_conflict: OnConflict) -> list[OutboxRow]:
        return [row_of(job, on_conflict, self._to) for job in jobs]


def _lasting(job: Prepared) -> Prepared:
    """A job that a row can say all of."""
    if job.quiet is not None:
        raise InvalidInput(
            f"The job {job.name!r} is debounced, and an outbox sends every job that is written in it.",
            hint="Dispatch it after the commit: after_commit=True over another connection.",
        )
    return job


def connect(name: str, given: ConnectionSettings, options: Options) -> OutboxConnection:
    """The connection that stands in the settings. Raises `ConfigError` for an option nobody knows."""
    words = {"to": "default", "table": TABLE, **given.options}
    for option, value in words.items():
        if option not in ("to", "table") or not isinstance(value, str):
            raise ConfigError(
                f"The connection {name!r} has {option} = {value!r}, and its driver is outbox.",
                hint="Known are to (a connection's name), table, queue and after_commit.",
            )
    return OutboxConnection(name, options, to=words["to"], table=words["table"])


def _timed(specs: Sequence[JobSpec]) -> bool:
    """Limits counted from when a job is due need the clock that its delay is counted by: the database's."""
    return any(spec.timed for spec in specs)


def _local_ms() -> int:
    return time.time_ns() // 1_000_000


def _ref(job: Prepared) -> JobRef:
    return JobRef(job.id, job.queue, State.ABSENT, None, Fate.OUTBOX, job.name)
