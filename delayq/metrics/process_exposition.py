"""What one worker or mover shows on its metrics port: what its own processes counted since it began."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from prometheus_client.core import Metric

from delayq.loops.vitals import Count, Vitals
from delayq.metrics.families import counter, gauge, histogram, written
from delayq.worker.meter import OUTCOMES, Measured, Meter, together

JANITOR: Final = {
    Count.RECLAIMED: "Deliveries that this janitor took back.",
    Count.CLOSED: "Deliveries that a plain consumer acknowledged and this janitor settled.",
    Count.REDELIVERED: "Deliveries that this janitor found to be in nobody's hands and delivered again.",
    Count.MENDED: "Jobs that this janitor put into their place again after damage.",
    Count.BURIED: "Stream entries that are no jobs and that this janitor kept as failed.",
    Count.UNHEALED: "Ticks of this janitor that found damage and could not mend it.",
    Count.REGROUPED: "Times that this janitor made a stream or its consumer group anew.",
}


def process_exposition(meters: Sequence[Meter], vitals: Vitals, accept: str = "") -> tuple[bytes, str]:
    """The page and its content type."""
    return written(families(meters, vitals), accept)


def families(meters: Sequence[Meter], vitals: Vitals) -> Iterator[Metric]:
    """All metrics of a process and its children."""
    rows = together(row for meter in meters for row in meter.rows())
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
    for count, said in JANITOR.items():
        name = f"delayq_janitor_{count.name.lower()}_total"
        yield counter(name, said, (), [((), vitals.get(count))])
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
