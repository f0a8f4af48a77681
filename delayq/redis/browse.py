"""A page of jobs for people to look through, over many queues and all their shards. Flows, as those of `verbs`.

States that are kept in the order of a time are merged: a round asks every shard for its next rows behind the spot,
takes the first of all of them, and reads only the envelopes of these. What is in a stream is shown queue by queue.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from delayq.core import failure as failures
from delayq.core.browsing import IN_ORDER, Found, Sought, Spot, read_spot
from delayq.core.failure_groups import FailureGroups, Grouping
from delayq.core.states import State
from delayq.core.views import JobInfo, Page
from delayq.redis import whole
from delayq.redis.calls import inspect
from delayq.redis.calls.call import Argument, Command, Scope
from delayq.redis.finding import FEW, shards_of_each, together
from delayq.redis.operations import scored
from delayq.redis.verbs import Flow, Verbs

STEP: Final = 500
"""Rows of a shard asked for at once."""
READ_BYTES: Final = 1_000_000
"""Envelopes read at once hold about as much."""
ROUNDS: Final = 100
"""Calls for a page of what is in streams: a pattern that fits nearly nothing would ask for one job at a time."""
_FIRST_READ: Final = 64
GROUP_STEP: Final = 200
"""Failed jobs in memory at once while they are grouped."""

Row = tuple[Spot, str]
"""Where a job stands, and the shard it lies in."""


def browse(verbs: Verbs, sought: Sought, cursor: str = "") -> Flow[Found]:
    """One page. Raises `InvalidInput` for a cursor that is none."""
    if sought.state not in IN_ORDER:
        return (yield from _in_streams(verbs, sought, cursor))
    spot = read_spot(cursor)
    shards: dict[str, Scope] = {}
    sought = yield from narrowed(verbs, sought)
    for scopes in (yield from shards_of_each(verbs, [verbs.scope(queue).queue for queue in sought.queues])):
        shards |= {scope.queue: scope for scope in scopes}
    found: list[JobInfo] = []
    looked = 0
    size = STEP if sought.narrow else sought.limit + 1
    while True:
        rows = yield from _next_rows(list(shards.values()), sought, spot, size)
        more = len(rows) == size
        for info, row in zip((yield from _read(shards, rows, sought.state)), rows, strict=True):
            if len(found) == sought.limit:
                return Found(tuple(found), str(spot), looked)
            spot, looked = row[0], looked + 1
            found += [info] if sought.has(info) else []
        if not more or looked >= sought.looks:
            return Found(tuple(found), str(spot) if more else "", looked)


def grouped(verbs: Verbs, sought: Sought, cursor: str = "") -> Flow[FailureGroups]:
    """Group the failed jobs that are sought, at most `sought.looks` of them; the cursor leads to the others."""
    grouping, looked = Grouping(), 0
    sought = yield from narrowed(verbs, sought)
    while True:
        left = sought.looks - looked
        found = yield from browse(verbs, replace(sought, limit=min(GROUP_STEP, left), looks=left), cursor)
        grouping.add(found.jobs)
        looked, cursor = looked + found.looked, found.cursor
        if not cursor or looked >= sought.looks:
            return grouping.groups(cursor, looked)


def with_failures(errors: str, jobs: Sequence[JobInfo]) -> Flow[tuple[JobInfo, ...]]:
    """Return failed jobs with their failures, which are read from the hash `errors`."""
    records = yield from _fetch(errors, [info.id for info in jobs])
    return tuple(replace(info, failure=failures.decode(raw)) for info, raw in zip(jobs, records, strict=True))


def count(verbs: Verbs, sought: Sought) -> Flow[int]:
    """How many jobs lie in the range, whatever they are called; of a state that is kept in the order of a time."""
    low = "-inf" if sought.since_ms is None else sought.since_ms
    high = "+inf" if sought.until_ms is None else sought.until_ms
    shards = yield from shards_of_each(verbs, [verbs.scope(queue).queue for queue in sought.queues])
    keys = [scope.keys.of(sought.state) for scopes in shards for scope in scopes]
    numbers: list[int] = (yield tuple(Command(("ZCOUNT", key, low, high), int, True) for key in keys)) if keys else []
    return sum(numbers)


def matching(verbs: Verbs, sought: Sought, most: int) -> Flow[tuple[int, bool]]:
    """How many jobs are meant, and whether that is all of them.

    What has to be looked at to know is counted one by one: up to `most`, and until `sought.looks` were looked at.
    """
    if sought.state in IN_ORDER and not sought.narrow:
        return (yield from count(verbs, sought)), True
    sought = yield from narrowed(verbs, sought)
    total = looked = 0
    cursor = ""
    while total < most and looked < sought.looks:
        page = yield from browse(verbs, replace(sought, limit=min(STEP, most - total)), cursor)
        total, looked, cursor = total + len(page.jobs), looked + page.looked, page.cursor
        if not cursor:
            return total, True
    return total, False


def narrowed(verbs: Verbs, sought: Sought) -> Flow[Sought]:
    """Return what is sought without the queues that hold no job in that state; two round trips, none for few queues."""
    if len(sought.queues) <= FEW:
        return sought
    return replace(sought, queues=tuple((yield from _holding(verbs, sought.queues, sought.state))))


def _holding(verbs: Verbs, queues: Sequence[str], state: State) -> Flow[list[str]]:
    """Return those of the queues that may hold jobs in that state; two round trips."""
    shards = yield from shards_of_each(verbs, queues)
    word, name = ("ZCARD", state) if state in IN_ORDER else ("XLEN", "stream")
    keys = [scope.keys.of(name) for scopes in shards for scope in scopes]
    lengths = iter((yield tuple(Command((word, key), int, True) for key in keys)))
    return [queue for queue, scopes in zip(queues, shards, strict=True) if sum([next(lengths) for _ in scopes])]


def _next_rows(scopes: Sequence[Scope], sought: Sought, spot: Spot | None, size: int) -> Flow[list[Row]]:
    """The next `size` rows of all shards together behind a spot, in their order; fewer at the end."""
    if len(scopes) > size:
        scopes = yield from _with_first_rows(scopes, sought, spot, size)
    asked = yield from together([_rows_of(scope, sought, spot, size) for scope in scopes])
    rows = [(one, scope.queue) for scope, mine in zip(scopes, asked, strict=True) for one in mine]
    rows.sort(key=lambda row: row[0], reverse=sought.newest)
    return rows[:size]


def _with_first_rows(scopes: Sequence[Scope], sought: Sought, spot: Spot | None, size: int) -> Flow[list[Scope]]:
    """Return the shards that may hold one of the next `size` rows: those whose own next row is among the first ones.

    A first row of the spot's own millisecond may lie before the spot, so such a shard is asked again.
    """
    at_ms = spot.at_ms if spot is not None and sought.covers(spot.at_ms) else None
    first, last, order = _range(sought)
    first = first if at_ms is None else str(at_ms)
    how: tuple[Argument, ...] = (first, last, *order, "LIMIT", 0, 1, "WITHSCORES")
    asked: list[list[tuple[int, str]]] = yield tuple(
        Command(("ZRANGE", scope.keys.of(sought.state), *how), scored, True) for scope in scopes
    )
    heads = [(rows[0], scope) for scope, rows in zip(scopes, asked, strict=True) if rows]
    found = [(Spot(*row, scope.name), scope) for row, scope in heads if row[0] != at_ms]
    tied = [scope for row, scope in heads if row[0] == at_ms]
    exact = yield from together([_rows_of(scope, sought, spot, 1) for scope in tied])
    found += [(mine[0], scope) for scope, mine in zip(tied, exact, strict=True) if mine]
    found.sort(key=lambda pair: pair[0], reverse=sought.newest)
    return [scope for _, scope in found[:size]]


def _rows_of(scope: Scope, sought: Sought, spot: Spot | None, size: int) -> Flow[list[Spot]]:
    """Those of one shard. Rows of the spot's own millisecond lie on both sides of it."""
    key, queue, skipped = scope.keys.of(sought.state), scope.name, 0
    first, last, order = _range(sought)
    if spot is not None and sought.covers(spot.at_ms):
        first = str(spot.at_ms)
        skipped = yield from _before(key, first, spot, newest=sought.newest)
    found: list[Spot] = []
    while True:
        words: tuple[Argument, ...] = ("ZRANGE", key, first, last, *order, "LIMIT", skipped, size, "WITHSCORES")
        rows: list[tuple[int, str]] = yield Command(words, scored, True)
        spots = (Spot(at_ms, job_id, queue) for at_ms, job_id in rows)
        found += [one for one in spots if spot is None or (one < spot if sought.newest else one > spot)]
        if len(rows) < size or len(found) >= size:
            return found[:size]
        skipped += size


def _range(sought: Sought) -> tuple[str, str, tuple[str, ...]]:
    """How ZRANGE is told the times that are sought, and their order."""
    low = "-inf" if sought.since_ms is None else str(sought.since_ms)
    high = "+inf" if sought.until_ms is None else str(sought.until_ms)
    return (high, low, ("BYSCORE", "REV")) if sought.newest else (low, high, ("BYSCORE",))


def _before(key: str, score: str, spot: Spot, *, newest: bool) -> Flow[int]:
    """How many rows of the spot's millisecond come before it; 0 when its job is not here, which costs only time."""
    rank: int | None = yield Command(("ZREVRANK" if newest else "ZRANK", key, spot.id), _maybe, True)
    if rank is None:
        return 0
    beyond = (f"({score}", "+inf") if newest else ("-inf", f"({score}")
    earlier: int = yield Command(("ZCOUNT", key, *beyond), int, True)
    same: int = yield Command(("ZCOUNT", key, score, score), int, True)
    return rank - earlier if earlier <= rank < earlier + same else 0  # else it has another time by now


def _maybe(reply: int | None) -> int | None:
    return reply


def _read(shards: Mapping[str, Scope], rows: Sequence[Row], state: State) -> Flow[list[JobInfo]]:
    """The jobs of these rows, in their order."""
    found: dict[Row, JobInfo] = {}
    held = {shard: [row for row in rows if row[1] == shard] for shard in dict.fromkeys(shard for _, shard in rows)}
    asked = yield from together([_fetch(shards[shard].keys.of("jobs"), _ids(mine)) for shard, mine in held.items()])
    told = [[b""] * len(mine) for mine in held.values()]
    if state is State.FAILED:
        told = yield from together(
            [_fetch(shards[shard].keys.of("errors"), _ids(mine)) for shard, mine in held.items()]
        )
    for mine, envelopes, errors in zip(held.values(), asked, told, strict=True):
        for row, raw, error in zip(mine, envelopes, errors, strict=True):
            found[row] = _info(row[0], state, raw, error)
    return [found[row] for row in rows]


def _ids(rows: Sequence[Row]) -> list[str]:
    return [spot.id for spot, _ in rows]


def _fetch(key: str, ids: Sequence[str]) -> Flow[list[bytes]]:
    """Values of a hash, some at a time, so that large ones do not come all at once."""
    values: list[bytes] = []
    size = _FIRST_READ
    while len(values) < len(ids):
        asked = ids[len(values) : len(values) + size]
        some: list[bytes] = yield Command(("HMGET", key, *asked), _bytes, True)
        values += some
        size = max(1, min(STEP, READ_BYTES * len(some) // (1 + sum(map(len, some)))))
    return values


def _bytes(reply: Sequence[bytes | None]) -> list[bytes]:
    return [value or b"" for value in reply]


def _info(spot: Spot, state: State, raw: bytes, error: bytes) -> JobInfo:
    return JobInfo(
        id=spot.id,
        queue=spot.queue,
        state=state,
        raw=raw,
        envelope=inspect.read(raw),
        due_ms=spot.at_ms if state is State.SCHEDULED else None,
        failed_ms=spot.at_ms if state is State.FAILED else None,
        forget_ms=spot.at_ms if state is State.COMPLETED else None,
        failure=failures.decode(error),
    )


# -- what is in a stream ---------------------------------------------------------------------------------------------


def _in_streams(verbs: Verbs, sought: Sought, cursor: str) -> Flow[Found]:
    """Ready and reserved jobs, queue by queue in the order of their entries; a cursor is a queue and its own there.

    Where a part of them is meant, only as many are asked for as are missing: so a page may come out short.
    """
    queue, _, after = cursor.partition(" ")
    left = [name for name in sought.queues if name >= queue]
    if len(left) > 1:
        left = yield from _holding(verbs, left, sought.state)
    found: list[JobInfo] = []
    looked = rounds = 0
    for name, following in zip(left, [*left[1:], ""], strict=False):
        after = after if name == queue else ""
        while True:
            page: Page = yield from whole.list_jobs(verbs, sought.state, name, after, sought.limit - len(found))
            found += filter(sought.has, page.jobs)
            looked, rounds, after = looked + len(page.jobs), rounds + 1, page.cursor
            if len(found) == sought.limit or looked >= sought.looks or rounds == ROUNDS:
                return Found(tuple(found), f"{name} {after}" if after else following, looked)
            if not after:
                break
    return Found(tuple(found), "", looked)
