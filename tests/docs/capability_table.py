"""The table of docs/connections.md, made from what each driver declares: `python -m tests.docs.capability_table`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Final

from delayq.core.durations import format_duration
from delayq.drivers.capabilities import Capabilities, Keeper
from delayq.drivers.known import BROKERS

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "connections.md"
NO: Final = "–"
MODULES: Final[Mapping[str, str]] = {"redis": "delayq.drivers.redis_streams", **BROKERS}
"""The drivers that keep jobs, and where their capabilities stand."""
_KEEPERS: Final = {Keeper.STEWARD: "supervisor", Keeper.HOLDER: "child", Keeper.NOBODY: "nobody"}


def _yes(able: bool) -> str:
    return "yes" if able else NO


def _delay(can: Capabilities) -> str:
    if not can.delay:
        return NO
    return "yes" if can.max_delay_ms is None else f"at most {format_duration(can.max_delay_ms)}"


def _size(can: Capabilities) -> str:
    return "setting" if can.max_bytes is None else f"{can.max_bytes:,} B"


ROWS: Final[Mapping[str, Callable[[Capabilities], str]]] = {
    "a job waits for its time": _delay,
    "times are kept to": lambda can: format_duration(can.resolution_ms),
    "largest job as it travels": _size,
    "own ids; `on_conflict` keep, error": lambda can: _yes(can.ids),
    "`on_conflict` replace, postpone": lambda can: _yes(can.replace),
    "cancel": lambda can: _yes(can.cancel),
    "reschedule": lambda can: _yes(can.reschedule),
    "run now": lambda can: _yes(can.run_now),
    "unique keys, debounce": lambda can: _yes(can.unique),
    "show, list": lambda can: _yes(can.inspect),
    "show a running job, wait for its end": lambda can: _yes(can.wait),
    "stats": lambda can: _yes(can.counts),
    "clear": lambda can: _yes(can.clear),
    "chains": lambda can: _yes(can.chains),
    "links of a chain wait for a unique key": lambda can: _yes(can.links_wait),
    "batches": lambda can: _yes(can.batches),
    "limits": lambda can: _yes(can.limits),
    "pause, maintenance, restart": lambda can: _yes(can.pause),
    "retention, results": lambda can: _yes(can.retention),
    "progress": lambda can: _yes(can.progress),
    "in the sender's own transaction": lambda can: _yes(can.transactional),
    "failed jobs are kept": lambda can: "in one step" if can.own_failed else "in a store",
    "vanished workers are counted": lambda can: "as attempts" if can.reads_count else _yes(can.recoveries),
    "who keeps a lease": lambda can: _KEEPERS[can.keeper],
    "deliveries a read, at most": lambda can: str(can.prefetch),
    "mover beside the worker": lambda can: _yes(can.mover),
}


def capabilities_of(driver: str) -> Capabilities:
    """What a driver declares."""
    found: Capabilities = import_module(MODULES[driver]).CAPABILITIES
    return found


def column(driver: str) -> list[str]:
    """What the table says of one driver, from top to bottom."""
    can = capabilities_of(driver)
    return [driver, *(cell(can) for cell in ROWS.values())]


def table() -> str:
    """All drivers that keep jobs, side by side."""
    columns = [["", *ROWS], *(column(driver) for driver in MODULES)]
    lines = [f"| {' | '.join(cells)} |" for cells in zip(*columns, strict=True)]
    return "\n".join([lines[0], f"|{'---|' * len(columns)}", *lines[1:]])


def columns_of(text: str) -> dict[str, list[str]]:
    """The columns of a table, by their heads."""
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in text.splitlines() if "---" not in line]
    return {column[0]: list(column) for column in zip(*rows, strict=True)}


def between(page: str) -> str:
    """The table as it stands in the page."""
    found = re.search(r"<!-- begin capabilities: [^\n]*-->\n(.*?)\n<!-- end capabilities -->", page, re.DOTALL)
    if found is None:
        raise ValueError("the page has no table of capabilities")
    return found[1]


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(text.replace(between(text), table()), encoding="utf-8")
