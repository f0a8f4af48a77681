"""Turns outcomes of attempts into calls: one for each kind and queue, not too many rows, not too many bytes."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from delayq.backends.protocol import Acked, Failed, Released, Settlement
from delayq.redis.commands import delivery as calls
from delayq.redis.commands.call import MAX_BYTES, MAX_ROWS, Call
from delayq.redis.keys import Keys


class Settling(NamedTuple):
    """One call, its queue, and the positions of what it settles in the list that was given."""

    queue: str
    positions: list[int]
    call: Call[list[bool]]


def settling_calls(keys: Keys, settled: Sequence[Settlement]) -> list[Settling]:
    """Return the calls that settle these outcomes."""
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
