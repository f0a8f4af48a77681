"""`python -m benchmarks`: measure and print a table; what is measured is written down as it comes.

JSON, table and picture lie in `build/bench`. A run that was stopped keeps what it had; `--go-on` goes on there.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Final

from benchmarks.machine import describe
from benchmarks.measures import MEASURES
from benchmarks.plan import Plan
from benchmarks.record import Record
from benchmarks.server import choose
from delayq.core.errors import DelayqError

RESULTS: Final = Path("build/bench")


def main(argv: list[str] | None = None) -> int:
    """0 when everything was measured; 1 when `--strict` and a target was missed; 2 for bad usage."""
    options = _parse(argv)
    try:
        plan = Plan(choose(options.server), options.quick, options.repeats, options.growth)
    except DelayqError as error:
        print(error, file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, _leave)  # a server must not outlive its measure
    asked = {"quick": options.quick, "repeats": plan.runs, "growth": options.growth}
    record = Record.open(_folder(options), {**describe(plan.binary), **asked})
    names = list(options.only or MEASURES)
    kept = [name for name in names if options.go_on and name in record.reports]
    if kept:
        print(f"Kept in {record.folder}, not measured again: {', '.join(kept)}.", file=sys.stderr, flush=True)
    for name in names:
        if name not in kept:
            print(f"{name} …", file=sys.stderr, flush=True)
            record.add(name, MEASURES[name].run(plan))
    print(record.table(names))
    if options.json:
        shutil.copy(record.folder / "results.json", options.json)
    missed = [row.what for name in names for row in record.reports[name].rows if row.verdict == "missed"]
    return 1 if options.strict and missed and record.judged else 0


def _folder(options: argparse.Namespace) -> Path:
    """A smoke run does not write over figures that mean something."""
    if options.out is not None:
        return Path(options.out)
    return RESULTS / "quick" if options.quick else RESULTS


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
    parser.add_argument("--out", type=Path, metavar="FOLDER", help=f"where results are kept (default {RESULTS})")
    parser.add_argument("--json", type=Path, metavar="FILE", help="copy results.json, with every run, to FILE")
    parser.add_argument("--go-on", action="store_true", help="leave out what is there already, of this very commit")
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
