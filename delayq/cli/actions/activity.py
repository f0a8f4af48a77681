"""activity and job-types: what happened, span by span, and how the jobs of each name ran."""

from __future__ import annotations

from typing import Final

from delayq.cli.session import Session
from delayq.cli.words import span as length
from delayq.core import shapes
from delayq.core.activity import COUNTS, Activity, Span, Spread
from delayq.core.errors import InvalidInput
from delayq.core.job_types import JobType, JobTypes, ordered
from delayq.core.when import format_instant
from delayq.redis.activity import SPAN

_SHARES = (("p50_ms", 0.5), ("p95_ms", 0.95), ("p99_ms", 0.99))


SPANS: Final = 15


def activity(
    session: Session, queue: str | None, span: str | None, spans: int | None, days: int | None, *, as_json: bool
) -> None:
    """Of one queue, or of all together."""
    if days is not None and (span is not None or spans is not None):
        raise InvalidInput("--days was given with --span or --spans.", hint="Leave one of them out.")
    with session.client() as client:
        if days is not None:
            found = client.activity(queue, days=days)
        else:
            found = client.activity(queue, span=span or SPAN, spans=spans or SPANS)
    if as_json:
        session.out.json(shape(found))
        return
    counts = ("scheduled", "started", "done", "released", "failed", "cancelled", "reclaimed")
    numbers = (*counts, "late p50", "p99", "took p50", "p99 ")
    rows = [(format_instant(one.start_ms), *_row(one, counts)) for one in found.spans]
    rows.append(("together", *_row(found.total, counts)))
    session.out.table(("from", *numbers), rows, numbers=numbers)


def _row(one: Span, counts: tuple[str, ...]) -> tuple[str, ...]:
    shares = [spread.percentile(share) for spread in (one.late, one.took) for share in (0.5, 0.99)]
    return *(f"{one.counts[name]:,}" for name in counts), *("" if ms is None else _words(ms) for ms in shares)


def job_types(
    session: Session, queue: str | None, hours: int | None, days: int | None, order: str, *, as_json: bool
) -> None:
    """Print how the jobs of each name ran."""
    if hours is not None and days is not None:
        raise InvalidInput("--hours was given with --days.", hint="Leave one of them out.")
    with session.client() as client:
        found = client.job_types(queue, hours=hours, days=days)
    types = ordered(found.types, order)
    if as_json:
        session.out.json(shapes.job_types(found, types))
        return
    numbers = ("attempts", "a minute", "failure rate", "failed", "retried", "p50", "p99", "run time")
    rows = [(one.name, *_figures(found, one), ", ".join(one.queues)) for one in types]
    session.out.table(("name", *numbers, "queues"), rows, numbers=numbers)
    session.out.note(f"Since {format_instant(found.since_ms)}." if types else "No attempt of a delayq worker ended.")


def _figures(found: JobTypes, one: JobType) -> tuple[str, ...]:
    rate = "" if one.failure_rate is None else f"{one.failure_rate:.2%}"
    counts = (f"{one.failed:,}", f"{one.retried:,}")
    times = ("" if ms is None else _words(ms) for ms in (one.percentile(0.5), one.percentile(0.99)))
    return f"{one.attempts:,}", f"{found.per_minute(one):,.3g}", rate, *counts, *times, length(round(one.took_ms))


def _words(ms: float) -> str:
    return f"{ms:.2g}ms" if ms < 10 else length(round(ms))


def shape(found: Activity) -> dict[str, object]:
    """What --json prints; `queue` is null for all together."""
    return {
        "queue": found.queue or None,
        "now_ms": found.now_ms,
        "now": format_instant(found.now_ms),
        "span_ms": found.span_ms,
        "spans": [_span(one) for one in found.spans],
        "together": _span(found.total),
    }


def _span(one: Span) -> dict[str, object]:
    times = {"start_ms": one.start_ms, "start": format_instant(one.start_ms)}
    return {
        **times,
        **{name: one.counts[name] for name in COUNTS},
        "late": _spread(one.late),
        "took": _spread(one.took),
    }


def _spread(spread: Spread) -> dict[str, object]:
    known = {name: _rounded(spread.percentile(share)) for name, share in _SHARES}
    return {"count": spread.count, "mean_ms": _rounded(spread.mean_ms), **known}


def _rounded(ms: float | None) -> float | None:
    return None if ms is None else round(ms, 3)
