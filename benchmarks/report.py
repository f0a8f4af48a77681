"""The figures as a Markdown table and as bars for people, and as JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.bars import Bar, Panel, draw
from benchmarks.figures import Report, Row, Samples, Target

HEAD = ("what", "delayq", "bare protocol", "ratio", "target", "")


def markdown(reports: Mapping[str, Report], about: Sequence[str], *, judged: bool = True) -> str:
    """One table over all measures; medians, with the lowest and highest run in brackets.

    `judged`: it says whether targets were met. The few turns of a smoke run are no reason to.
    """
    rows = [HEAD, tuple("---" for _ in HEAD)]
    rows += [_cells(row, judged=judged) for report in reports.values() for row in report.rows]
    lines = [*about, "", *("| " + " | ".join(row) + " |" for row in rows)]
    notes = [f"- {note}" for report in reports.values() for note in report.notes]
    return "\n".join([*lines, *(["", *notes] if notes else [])])


def document(reports: Mapping[str, Report], about: Mapping[str, Any], *, judged: bool = True) -> str:
    """Everything, every single run included."""
    measures = {
        name: {"rows": [_plain(row, judged=judged) for row in report.rows], "notes": list(report.notes)}
        for name, report in reports.items()
    }
    return json.dumps({**about, "measures": measures}, indent=2, ensure_ascii=False) + "\n"


def read_reports(measures: Mapping[str, Any]) -> dict[str, Report]:
    """The reports of a `document`, by measure."""
    return {
        name: Report([_read_row(row) for row in report["rows"]], report["notes"]) for name, report in measures.items()
    }


def picture(reports: Mapping[str, Report]) -> str:
    """A panel for each row that stands beside something: the bare protocol, or else what is wanted."""
    panels = []
    for row in (row for report in reports.values() for row in report.rows):
        bars = [Bar("delayq", row.ours.median, ours=True)]
        if row.raw is not None:
            bars.append(Bar("bare protocol", row.raw.median, ours=False))
        elif row.target is not None and row.ratio is None:
            bars.append(Bar(f"wanted {row.target.sign}", row.target.value, ours=False))
        if len(bars) > 1:
            panels.append(Panel(f"{row.what}, {row.ours.unit}", bars))
    return draw(panels, "delayq beside the bare protocol")


def _cells(row: Row, *, judged: bool) -> tuple[str, ...]:
    target = row.target
    wanted = "" if target is None else f"{target.sign} {target.value:g}"
    if target is not None and target.later is not None:
        wanted += f" (later {target.later:g})"
    return (row.what, _figure(row.ours), _figure(row.raw), _figure(row.ratio), wanted, row.verdict if judged else "")


def _figure(samples: Samples | None) -> str:
    if samples is None:
        return ""
    unit = "" if samples.unit == "×" else f" {samples.unit}"
    spread = f" ({_number(samples.low)} – {_number(samples.high)})" if len(samples.values) > 1 else ""
    return f"{_number(samples.median)}{unit}{spread}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.3g}"


def _plain(row: Row, *, judged: bool) -> dict[str, Any]:
    return {
        "what": row.what,
        "ours": _samples(row.ours),
        "raw": _samples(row.raw),
        "ratio": _samples(row.ratio),
        "target": None if row.target is None else {"sign": row.target.sign, "value": row.target.value},
        "later": None if row.target is None else row.target.later,
        "verdict": row.verdict if judged else "",
    }


def _read_row(row: Mapping[str, Any]) -> Row:
    ours, raw, ratio = (_read_samples(row[name]) for name in ("ours", "raw", "ratio"))
    if ours is None:
        raise ValueError(f"the row {row['what']!r} has no figure")
    wanted = row["target"]
    return Row(row["what"], ours, raw, ratio, wanted and Target(wanted["sign"], wanted["value"], row["later"]))


def _read_samples(samples: Mapping[str, Any] | None) -> Samples | None:
    return None if samples is None else Samples(tuple(samples["runs"]), samples["unit"])


def _samples(samples: Samples | None) -> dict[str, Any] | None:
    if samples is None:
        return None
    return {"unit": samples.unit, "median": samples.median, "runs": list(samples.values)}
