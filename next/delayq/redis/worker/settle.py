"""Turns settlements into calls: one for each kind and queue, with at most 250 rows and 1 MB each."""

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from delayq.backends.protocol import Acked, Failed, Released, Settlement
from delayq.redis.commands import delivery as calls
from delayq.redis.commands.call import Call
from delayq.redis.keys import Keys

MAX_ROWS: Final = 250
MAX_BYTES: Final = 1_000_000
"""Most bytes of one call. A larger row has a call of its own."""


class Settling(NamedTuple):
    """One call, its queue, and the positions of its rows in the list of settlements."""

    queue: str
    positions: list[int]
    call: Call[list[bool]]


def settling_calls(keys: Keys, settled: Sequence[Settlement]) -> list[Settling]:
    """Return the calls that carry out these settlements."""
    groups: dict[tuple[type[Settlement], str], list[int]] = {}
    for position, settlement in enumerate(settled):
        groups.setdefault((type(settlement), settlement.queue), []).append(position)
    return [
        Settling(queue, page, _call(keys, kind, queue, [settled[n] for n in page]))
        for (kind, queue), positions in groups.items()
        for page in _pages(settled, positions)
    ]


def _pages(settled: Sequence[Settlement], positions: list[int]) -> Iterator[list[int]]:
    page: list[int] = []
    size = 0
    for position in positions:
        size += _bytes(settled[position])
        if page and (len(page) == MAX_ROWS or size > MAX_BYTES):
            yield page
            page, size = [], _bytes(settled[position])
        page.append(position)
    yield page


def _bytes(settlement: Settlement) -> int:
    if isinstance(settlement, Acked):
        return len(settlement.result) + len(settlement.report)
    return len(settlement.envelope) + len(settlement.failure)


def _call(keys: Keys, kind: type[Settlement], queue: str, rows: Sequence[Any]) -> Call[list[bool]]:
    if kind is Acked:
        return calls.ack(keys, queue, rows)
    if kind is Released:
        return calls.release(keys, queue, rows)
    assert kind is Failed
    return calls.fail(keys, queue, rows)
