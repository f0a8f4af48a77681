"""Orders the tests of a run."""

from collections.abc import Iterator, Sequence
from typing import Final

import pytest

TOPOLOGY: Final = "tests/topology/"
LONG: Final = (TOPOLOGY, "tests/oracle/", "tests/docs/")


def in_order(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Return the tests in an order that keeps all cores busy to the end.

    The longest tests come first, so that none of them still runs alone at the end: the tests with several Redis
    servers, the comparison with the first edition, and the tests of the pages. Then come all other tests. Those that
    start worker processes mostly wait, so they are spread evenly over the rest.
    """
    long = [item for folder in LONG for item in items if item.nodeid.startswith(folder)]
    others = [item for item in items if not item.nodeid.startswith(LONG)]
    waiting = [item for item in others if item.get_closest_marker("processes")]
    computing = [item for item in others if not item.get_closest_marker("processes")]
    return long + list(_spread(waiting, computing))


def _spread(few: list[pytest.Item], many: list[pytest.Item]) -> Iterator[pytest.Item]:
    placed = [(number / len(group), item) for group in (few, many) for number, item in enumerate(group)]
    return (item for _, item in sorted(placed, key=lambda pair: pair[0]))
