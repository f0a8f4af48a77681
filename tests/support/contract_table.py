"""The contract suite's table at the end of a run: for each driver what passed, and what it cannot do."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest

from tests.contract.backends import all_backends

FOLDER = "tests/contract/"
KINDS = ("passed", "failed", "skipped")


def write_contract_table(terminalreporter: pytest.TerminalReporter) -> None:
    """Nothing when no test of the suite ran."""
    counts: dict[str, Counter[str]] = {}
    reasons: dict[str, Counter[str]] = {}
    for kind in KINDS:
        for report in terminalreporter.stats.get(kind, []):
            driver = _driver_of(report.nodeid)
            if driver and (report.when == "call" or kind != "passed"):
                counts.setdefault(driver, Counter())[kind] += 1
                if kind == "skipped":
                    reasons.setdefault(driver, Counter())[_reason(report)] += 1
    if not counts:
        return
    terminalreporter.section("contract: one suite, every driver")
    for driver, counted in sorted(counts.items()):
        said = "  ".join(f"{counted[kind]:3} {kind}" for kind in KINDS)
        terminalreporter.write_line(f"{driver:16} {said}")
        for reason, times in sorted(reasons.get(driver, {}).items()):
            terminalreporter.write_line(f"{'':16} {times:3} x {reason}")


def _driver_of(nodeid: str) -> str:
    """The driver stands first among a test's parameters: test_x[redis_streams-…]."""
    first = nodeid.partition("[")[2].rstrip("]").partition("-")[0] if FOLDER in nodeid else ""
    return first if first in _drivers() else ""


@cache
def _drivers() -> frozenset[str]:
    return frozenset(row.name for row in all_backends())


def _reason(report: pytest.TestReport) -> str:
    told = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return told.removeprefix("Skipped: ").removeprefix("contract: ")
