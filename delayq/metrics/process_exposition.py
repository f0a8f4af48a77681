"""What one worker or mover shows on its metrics port: what its own processes counted since it began."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from prometheus_client.core import Metric

from delayq.core.activity import Spread
from delayq.loops.vitals import Count, Vitals
from delayq.metrics.families import counter, gauge, histogram, written
from delayq.worker.meter import OUTCOMES, Measured, Meter


def process_exposition(meters: Sequence[Meter], vitals: Vitals, accept: str = "") -> tuple[bytes, str]:
    """The page and its content type."""
    return written(families(meters, vitals), accept)


def families(meters: Sequence[Meter], vitals: Vitals) -> Iterator[Metric]:
    """All metrics of a process and its children."""
    rows = _together(row for meter in meters for row in meter.rows())
    if meters:
        yield from _attempts(rows)
        yield gauge("delayq_worker_children", "Processes that run jobs.", (), [((), vitals.get(Count.CHILDREN))])
        deaths = [((), vitals.get(Count.DEATHS))]
        yield counter("delayq_worker_child_deaths_total", "Processes that ended and were not meant to.", (), deaths)
    yield gauge("delayq_worker_start_time_seconds", "When this worker or mover began.", (), [((), vitals.began)])
    moved = [((), vitals.get(Count.PROMOTED))]
    yield counter("delayq_mover_promoted_total", "Jobs moved to the stream by this mover.", (), moved)
    lost = [((), vitals.get(Count.LOST))]
    yield counter("delayq_mover_lost_total", "Jobs met by this mover whose payload somebody removed.", (), lost)
    back = [((), vitals.get(Count.RECLAIMED))]
    yield counter("delayq_janitor_reclaimed_total", "Deliveries that this janitor took back.", (), back)
    yield gauge(
        "delayq_loop_last_success_timestamp_seconds",
        "When each loop of this worker or mover did its last step.",
        ["loop"],
        [((loop,), at) for loop, at in vitals.beats().items()],
    )


def _attempts(rows: Mapping[tuple[str, str], Measured]) -> Iterator[Metric]:
    yield histogram(
        "delayq_job_lateness_seconds",
        "From due time to the start of the handler.",
        ("queue", "job"),
        [(names, row.late) for names, row in rows.items()],
    )
    ended = [(names, n, outcome) for names in rows for n, outcome in enumerate(OUTCOMES)]
    yield histogram(
        "delayq_job_duration_seconds",
        "How long attempts ran.",
        ("queue", "job", "outcome"),
        [((*names, outcome), rows[names].took[n]) for names, n, outcome in ended if rows[names].took[n].count],
    )
    yield counter(
        "delayq_job_attempts_total",
        "Attempts that ended, those among them that were not let start.",
        ("queue", "job", "outcome"),
        [((*names, outcome), rows[names].ended[n]) for names, n, outcome in ended if rows[names].ended[n]],
    )


def _together(rows: Iterable[Measured]) -> dict[tuple[str, str], Measured]:
    """All children's rows of a queue and job as one."""
    found: dict[tuple[str, str], Measured] = {}
    for row in rows:
        before = found.get((row.queue, row.job))
        found[row.queue, row.job] = row if before is None else _sum(before, row)
    return found


def _sum(one: Measured, other: Measured) -> Measured:
    ended = tuple(a + b for a, b in zip(one.ended, other.ended, strict=True))
    took: tuple[Spread, ...] = tuple(a + b for a, b in zip(one.took, other.took, strict=True))
    return Measured(one.queue, one.job, one.late + other.late, ended, took)
