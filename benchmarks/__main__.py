"""`python -m benchmarks`: measure, print a table, write JSON if asked to."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path
from types import FrameType

from benchmarks.figures import Report
from benchmarks.machine import describe, sentences
from benchmarks.measures import MEASURES
from benchmarks.plan import Plan
from benchmarks.report import document, markdown
from benchmarks.server import choose
from delayq.core.errors import DelayqError


def main(argv: list[str] | None = None) -> int:
    """0 when everything was measured; 1 when `--strict` and a target was missed; 2 for bad usage."""
    options = _parse(argv)
    try:
        plan = Plan(choose(options.server), options.quick, options.repeats, options.growth)
    except DelayqError as error:
        print(error, file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, _leave)  # a server must not outlive its measure
    about = describe(plan.binary)
    reports: dict[str, Report] = {}
    for name in options.only or MEASURES:
        print(f"{name} …", file=sys.stderr, flush=True)
        reports[name] = MEASURES[name].run(plan)
    print(markdown(reports, sentences(about)))
    if options.quick:
        print("\nA smoke run (--quick): it shows that everything runs; its figures mean nothing.")
    if options.json:
        options.json.write_text(document(reports, {**about, "quick": options.quick}), encoding="utf-8")
    missed = [row.what for report in reports.values() for row in report.rows if row.verdict == "missed"]
    return 1 if options.strict and missed and not options.quick else 0


def _leave(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)


def _parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    names = ", ".join(MEASURES)
    parser.add_argument("--quick", action="store_true", help="seconds instead of minutes; the figures mean nothing")
    parser.add_argument("--only", action="append", choices=list(MEASURES), metavar="NAME", help=f"one of {names}")
    parser.add_argument("--repeats", type=_at_least_one, default=5, metavar="N", help="runs of each side (default 5)")
    parser.add_argument(
        "--growth", type=_at_least_one, default=1_000_000, metavar="N", help="deep backlog (default 1000000 jobs)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every run to FILE")
    parser.add_argument("--server", type=Path, metavar="PATH", help="the redis-server or valkey-server to measure on")
    parser.add_argument("--strict", action="store_true", help="exit 1 when a target is missed")
    return parser.parse_args(argv)


def _at_least_one(word: str) -> int:
    number = int(word)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{word} is no count; use 1 or more")
    return number


if __name__ == "__main__":
    sys.exit(main())
