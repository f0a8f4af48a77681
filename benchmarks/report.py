"""The figures as a Markdown table for people and as JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.figures import Report, Row, Samples

HEAD = ("what", "delayq", "bare protocol", "ratio", "target", "")


def markdown(reports: Mapping[str, Report], about: Sequence[str]) -> str:
    """One table over all measures; medians, with the lowest and highest run in brackets."""
    rows = [HEAD, tuple("---" for _ in HEAD)]
    rows += [_cells(row) for report in reports.values() for row in report.rows]
    lines = [*about, "", *("| " + " | ".join(row) + " |" for row in rows)]
    notes = [f"- {note}" for report in reports.values() for note in report.notes]
    return "\n".join([*lines, *(["", *notes] if notes else [])])


def document(reports: Mapping[str, Report], about: Mapping[str, Any]) -> str:
    """Everything, every single run included."""
    measures = {
        name: {"rows": [_plain(row) for row in report.rows], "notes": list(report.notes)}
        for name, report in reports.items()
    }
    return json.dumps({**about, "measures": measures}, indent=2, ensure_ascii=False) + "\n"


def _cells(row: Row) -> tuple[str, ...]:
    target = row.target
    wanted = "" if target is None else f"{target.sign} {target.value:g}"
    if target is not None and target.later is not None:
        wanted += f" (later {target.later:g})"
    return (row.what, _figure(row.ours), _figure(row.raw), _figure(row.ratio), wanted, row.verdict)


def _figure(samples: Samples | None) -> str:
    if samples is None:
        return ""
    unit = "" if samples.unit == "×" else f" {samples.unit}"
    spread = f" ({_number(samples.low)} – {_number(samples.high)})" if len(samples.values) > 1 else ""
    return f"{_number(samples.median)}{unit}{spread}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.3g}"


def _plain(row: Row) -> dict[str, Any]:
    return {
        "what": row.what,
        "ours": _samples(row.ours),
        "raw": _samples(row.raw),
        "ratio": _samples(row.ratio),
        "target": None if row.target is None else {"sign": row.target.sign, "value": row.target.value},
        "later": None if row.target is None else row.target.later,
        "verdict": row.verdict,
    }


def _samples(samples: Samples | None) -> dict[str, Any] | None:
    if samples is None:
        return None
    return {"unit": samples.unit, "median": samples.median, "runs": list(samples.values)}
