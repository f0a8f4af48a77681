"""The full fault suite: `python -m tests.chaos [NAME …] [--seed N] [--units N]`, or `make chaos ARGS='NAME …'`.

Without names all scenarios, one after another. What has passed is kept in build/chaos and not run again: a run that was
stopped goes on where it was. `--again` begins anew, `--list` tells what there is, `--show` what has been done.
Ends with 1 when a promise was broken; the last line says how to play that lot again.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
from pathlib import Path

from tests.chaos.catalogue import SCENARIOS
from tests.chaos.engine import ROOT, Record, Scenario, play


def tell(line: str) -> None:
    """One line, at once."""
    sys.stdout.write(f"{time.strftime('%H:%M:%S')} {line}\n")
    sys.stdout.flush()


def main() -> int:
    """The exit code."""
    given = _arguments()
    chosen = [SCENARIOS[name] for name in given.names or SCENARIOS]
    if given.list:
        for one in chosen:
            tell(f"{one.name:<16} {one.units:>9,} {one.unit}: {one.holds} ({', '.join(one.promises)})")
        return 0
    broken = [one.name for one in chosen if not _done(one, given)]
    tell(f"broken: {', '.join(broken)}" if broken else "nothing was broken")
    return bool(broken)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", choices=[[], *SCENARIOS])
    parser.add_argument("--seed", type=int, help="play with this seed; drawn, and printed, without")
    parser.add_argument("--units", type=int, help="so many, not what the full tier does")
    parser.add_argument("--lots", type=int, default=0, help="the next so many lots; all without")
    parser.add_argument("--again", action="store_true", help="forget what has been done")
    parser.add_argument("--list", action="store_true", help="tell what there is")
    parser.add_argument("--show", action="store_true", help="tell what has been done")
    parser.add_argument("--record", type=Path, default=ROOT / "build" / "chaos", help="where that is kept")
    return parser.parse_args()


def _done(scenario: Scenario, given: argparse.Namespace) -> bool:
    """Whether it holds, or was left out with its reason."""
    record = Record(given.record, scenario.name, given.seed)
    if given.again:
        record.lots.clear()
    units = given.units or scenario.units
    if reason := scenario.missing():
        tell(f"SKIPPED {scenario.name}: {reason}")
        return True
    try:
        if not given.show:
            play(scenario, record, units, tell, given.lots)
    except Exception:  # noqa: BLE001  (whatever ends a lot breaks the promise; the next scenario runs all the same)
        tell(traceback.format_exc())
        again = f"python -m tests.chaos {scenario.name} --seed {record.seed} --units {units}"
        tell(f"BROKEN {scenario.name}: {scenario.holds}; seed {record.seed}. Again: {again}")
        return False
    if record.lots:
        total, commits = record.total(), ", ".join(record.commits())
        tell(f"== {scenario.name}, seed {record.seed}, {sum(lot['units'] for lot in record.lots.values()):,} "
             f"of {units:,} {scenario.unit} at {commits}: {total}")  # fmt: skip
    return True


def _until_nobody_reads() -> int:
    """The exit code; 0 when who reads has enough, as `head` does."""
    try:
        code = main()
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left to be written ends there
        return 0
    return code


if __name__ == "__main__":
    sys.exit(_until_nobody_reads())
