"""Turns settlements, which report the outcomes of attempts, into calls of scripts.

Each call has one kind of settlement, for one queue, and either only jobs that may have follow-up jobs or none. A call
has at most 250 rows, and at most 1 MB unless a single row is larger. Further rows go into further calls.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from delayq.backends.values import Acked, Failed, Released, Settlement, Stopped
from delayq.redis.calls import delivery as calls
from delayq.redis.calls.call import MAX_BYTES, MAX_ROWS, Call
from delayq.redis.keys import Keys
from delayq.redis.worker.grouping import cut


class Settling(NamedTuple):
    """One call that settles jobs, its queue, and the positions of its settlements in the list of all settlements.

    `before`: the call that stores the changed chains of these jobs; None = no chain was changed. If this call
    fails, do not settle the jobs, because the changes would be lost.
    """

    queue: str
    positions: Sequence[int]
    call: Call[list[int]]
    before: Call[list[int]] | None = None


def settling_calls(keys: Keys, settled: Sequence[Settlement]) -> list[Settling]:
    """Return the calls that carry out these settlements."""
    groups: defaultdict[tuple[type[Settlement], str, bool], list[int]] = defaultdict(list)
    for position, settlement in enumerate(settled):
        groups[type(settlement), settlement.queue, settlement.is_followed].append(position)
    to_send: list[Settling] = []
    for (kind, queue, is_followed), positions in groups.items():
        for page in _pages(settled, positions):
            rows = [settled[n] for n in page]
            changed = [row for row in rows if isinstance(row, Acked) and row.envelope] if is_followed else ()
            before = calls.rewrite(keys, queue, changed) if changed else None
            to_send.append(Settling(queue, page, _call(keys, kind, queue, rows), before))
    return to_send


def _pages(settled: Sequence[Settlement], positions: list[int]) -> Iterator[Sequence[int]]:
    if _are_bare([settled[n] for n in positions]):
        yield from cut(positions, MAX_ROWS)
        return
    page: list[int] = []
    size = 0
    for position in positions:
        size += _bytes(settled[position])
        if page and (len(page) == MAX_ROWS or size > MAX_BYTES):
            yield page
            page, size = [], _bytes(settled[position])
        page.append(position)
    yield page


def _are_bare(rows: Sequence[Settlement]) -> bool:
    """Return True if all rows are acknowledgements without texts, whose size need not be checked."""
    return not [row for row in rows if type(row) is not Acked or row.result or row.report or row.envelope]


def _bytes(settlement: Settlement) -> int:
    if isinstance(settlement, Acked):
        return len(settlement.result) + len(settlement.report) + len(settlement.envelope)
    if isinstance(settlement, Stopped):
        return 0
    return len(settlement.envelope) + len(settlement.failure)


def _call(keys: Keys, kind: type[Settlement], queue: str, rows: Sequence[Any]) -> Call[list[int]]:
    if kind is Acked:
        return calls.ack(keys, queue, rows)
    if kind is Stopped:
        return calls.ack_stopped(keys, queue, rows)
    if kind is Released:
        return calls.release(keys, queue, rows)
    assert kind is Failed
    return calls.fail(keys, queue, rows)
