"""What happened lately as pictures and figures: from minutes of activity to charts. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from delayq.core.activity import Activity, Span, joined
from delayq.core.views import QueueStats, Upcoming
from delayq.http.dashboard import charts
from delayq.http.dashboard.charts import Chart, Series
from delayq.http.dashboard.wording import compact, day, milliseconds, minute, plural, span

RATE_MINUTES: Final = 5
"""Rates are those of so many whole minutes."""
LEAST_MS: Final = 0.1
"""Where the scale of lateness begins: it is drawn by powers of ten."""
_EMPTY: Final = "Nothing yet."


@dataclass(frozen=True, slots=True)
class Pulse:
    """Rates per second, shares of failures, and lateness in ms of the last minutes; None = nothing ran."""

    started: float
    done: float
    failed: int
    late_half_ms: float | None
    late_most_ms: float | None
    took_ms: float | None


def together(activities: Sequence[Activity], now_ms: int) -> Activity:
    """Several queues as one."""
    if not activities:
        return Activity("", now_ms, 60_000, ())
    rows = zip(*(one.spans for one in activities), strict=True)
    spans = tuple(joined(row[0].start_ms, row) for row in rows)
    return Activity("", max(one.now_ms for one in activities), activities[0].span_ms, spans)


def pulse(activity: Activity) -> Pulse:
    """How it goes: the last whole minutes and the one that has begun."""
    last = joined(activity.now_ms, activity.spans[-RATE_MINUTES - 1 :])
    begun_ms = activity.now_ms - activity.spans[-RATE_MINUTES - 1 :][0].start_ms if activity.spans else 0
    seconds = max(1.0, begun_ms / 1000)
    late = last.late
    return Pulse(
        last.started / seconds,
        last.done / seconds,
        last.failed,
        late.percentile(0.5),
        late.percentile(0.99),
        last.took.mean_ms,
    )


def _axis(spans: Sequence[Span], said: Callable[[int], str] = minute) -> tuple[str, ...]:
    """Five times along the bottom."""
    if len(spans) < 2:
        return ()
    marks = [round(n * (len(spans) - 1) / 4) for n in range(5)]
    return tuple(said(spans[n].start_ms) for n in marks)


def throughput(activity: Activity) -> Chart:
    """Attempts that ended, minute by minute, by how they did."""
    spans = activity.spans
    series = (
        Series("done", "completed", tuple(one.done for one in spans)),
        Series("retried", "ready", tuple(one.released for one in spans)),
        Series("failed", "failed", tuple(one.failed for one in spans)),
    )
    labels = [minute(one.start_ms) for one in spans]
    drawn, top = charts.bars(series, labels)
    done, failed = (sum(one.values[n] or 0 for n in range(len(labels))) for one in (series[0], series[2]))
    rows = tuple(
        (label, *(f"{one.values[n] or 0:,.0f}" for one in series))
        for n, label in enumerate(labels)
        if any(one.values[n] for one in series)
    )
    return Chart(
        "Attempts that ended, by minute",
        f"{plural(int(done), 'job')} done and {int(failed):,} failed in the last hour." if rows else _EMPTY,
        compact(top),
        _axis(spans),
        ("minute (UTC)", *(one.name for one in series)),
        rows,
        bars=drawn,
        legend=tuple((one.kind, one.name) for one in series),
    )


def history(activity: Activity) -> Chart:
    """Jobs that ended, day by day."""
    series = (
        Series("done", "completed", tuple(one.done for one in activity.spans)),
        Series("failed", "failed", tuple(one.failed for one in activity.spans)),
    )
    labels = [day(one.start_ms) for one in activity.spans]
    drawn, top = charts.bars(series, labels)
    rows = tuple(
        (label, f"{one.done:,}", f"{one.failed:,}")
        for label, one in zip(labels, activity.spans, strict=True)
        if one.done or one.failed
    )
    total = activity.total
    said = f"{plural(total.done, 'job')} done and {total.failed:,} failed in {len(labels)} days."
    return Chart(
        "Jobs that ended, by day",
        said if rows else _EMPTY,
        compact(top),
        _axis(activity.spans, day),
        ("day (UTC)", *(one.name for one in series)),
        rows,
        bars=drawn,
        legend=tuple((one.kind, one.name) for one in series),
    )


def lateness(activity: Activity) -> Chart:
    """How late handlers started, minute by minute: p50 and p99."""
    spans = activity.spans
    series = (
        Series("p99", "ready", tuple(one.late.percentile(0.99) for one in spans)),
        Series("p50", "scheduled", tuple(one.late.percentile(0.5) for one in spans)),
    )
    drawn, top = charts.lines(series, LEAST_MS)
    rows = tuple(
        (minute(one.start_ms), *(_ms(line.values[n]) for line in series)) for n, one in enumerate(spans) if one.started
    )
    total = activity.total.late
    return Chart(
        "Lateness: from due to started",
        f"p50 {_ms(total.percentile(0.5))}, p99 {_ms(total.percentile(0.99))}." if total.count else _EMPTY,
        span(top),
        _axis(spans),
        ("minute (UTC)", *(one.name for one in series)),
        rows,
        lines=drawn,
        legend=tuple((one.kind, one.name) for one in series),
        floor=f"{_ms(LEAST_MS)}, log scale",
    )


def _ms(value: float | None) -> str:
    return milliseconds(value) or "–"


def backlog(activity: Activity, stats: Sequence[QueueStats]) -> Chart:
    """How much waited or ran at the end of each minute: what there is now, less what came, plus what went since."""
    level = float(sum(one.scheduled + one.load for one in stats))
    levels: list[float] = []
    for one in reversed(activity.spans):
        levels.append(max(0.0, level))
        level -= one.scheduled - one.done - one.failed - one.cancelled
    levels.reverse()
    series = (Series("waiting or running", "scheduled", tuple(levels)),)
    drawn, top = charts.lines(series)
    rows = tuple((minute(one.start_ms), f"{levels[n]:,.0f}") for n, one in enumerate(activity.spans))
    now = int(levels[-1]) if levels else 0
    return Chart(
        "Backlog",
        f"{plural(now, 'job')} now; worked out backwards from what came and went.",
        compact(top),
        _axis(activity.spans),
        ("minute (UTC)", "jobs"),
        rows,
        lines=drawn,
    )


def falling_due(histograms: Sequence[Upcoming], now_ms: int) -> Chart:
    """What falls due in each of the next minutes."""
    counts = [sum(column) for column in zip(*(one.counts for one in histograms), strict=True)]
    overdue, later = sum(one.overdue for one in histograms), sum(one.later for one in histograms)
    span_ms = histograms[0].span_ms if histograms else 60_000
    labels = [f"{minute(now_ms + n * span_ms)} to {minute(now_ms + (n + 1) * span_ms)}" for n in range(len(counts))]
    drawn, top = charts.bars((Series("due", "scheduled", tuple(counts)),), labels)
    marks = [round(n * len(counts) / 4) for n in range(5)] if counts else []
    said = [f"{plural(sum(counts), 'job')} in the next hour"]
    said += [f"{overdue:,} overdue"] if overdue else []
    said += [f"{later:,} later"] if later else []
    return Chart(
        "Falls due in the next hour",
        f"{', '.join(said)}.",
        compact(top),
        tuple("now" if not n else f"+{span(n * span_ms)}" for n in marks),
        ("minute (UTC)", "jobs"),
        tuple((label, f"{count:,}") for label, count in zip(labels, counts, strict=True) if count),
        bars=drawn,
    )
