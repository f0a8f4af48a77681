"""Measures both editions in turn, A B A B: what slows the machine for a while slows both."""

import json
from collections.abc import Callable

from benchmarks.editions import Edition, run_measure
from benchmarks.figures import Comparison, Found, Measure
from tests.support.servers import private_server

Tell = Callable[[str], None]


def compare(measure: Measure, editions: tuple[Edition, Edition], pairs: int, tell: Tell) -> list[Comparison]:
    """Run a measure `pairs` times in each edition, each time on a server of its own; `tell` hears of each pair."""
    rows: list[tuple[Found, Found]] = []
    for number in range(1, pairs + 1):
        pair = (_run(measure, editions[0]), _run(measure, editions[1]))
        rows.append(pair)
        tell(f"{measure.name} {number}/{pairs}: {_said(measure, pair)}")
    return [
        Comparison(
            measure.name, figure, [first[figure.name] for first, _ in rows], [second[figure.name] for _, second in rows]
        )
        for figure in measure.figures
    ]


def _run(measure: Measure, edition: Edition) -> Found:
    with private_server() as url:
        found: Found = json.loads(run_measure(edition, measure.name, url))
    return found


def _said(measure: Measure, pair: tuple[Found, Found]) -> str:
    return ", ".join(
        f"{figure.name} {pair[0][figure.name]:,.2f} : {pair[1][figure.name]:,.2f}" for figure in measure.figures
    )
