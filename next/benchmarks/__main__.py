"""`python -m benchmarks [MEASURE …]`: run measures in both editions and print what they found."""

import sys
from typing import Annotated

import typer

from benchmarks.editions import both_editions, end_in_order_when_told
from benchmarks.measures import MEASURES
from benchmarks.pairs import compare
from benchmarks.report import print_json, print_table


def bench(
    measures: Annotated[
        list[str] | None, typer.Argument(metavar="[MEASURE]...", help="What to measure [all].", show_default=False)
    ] = None,
    pairs: Annotated[
        int, typer.Option("--pairs", min=0, help="Runs of each edition; 0 = as many as each measure asks for.")
    ] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print one line of JSON for each figure.")] = False,
) -> None:
    """Measure both editions of delayq in turn, each time on a fresh private server.

    The first edition comes from `make first`. DELAYQ_TEST_SERVER names another server program.
    """
    names = measures or list(MEASURES)
    if unknown := [name for name in names if name not in MEASURES]:
        raise typer.BadParameter(f"{unknown[0]!r} is no measure. There are: {', '.join(MEASURES)}.")
    editions = both_editions()
    end_in_order_when_told()
    comparisons = []
    for name in names:
        measure = MEASURES[name]
        comparisons += compare(measure, editions, pairs or measure.pairs, _tell)
    (print_json if json else print_table)(comparisons)


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    typer.run(bench)
