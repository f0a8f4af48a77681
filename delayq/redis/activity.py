"""The verb that tells what happened, over all shards of a queue or over all queues; and its two shells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from delayq.core.activity import DAY_MINUTES, DAY_MS, HISTORY_DAYS, MINUTE_MS, Activity, not_tallied, row_of, spans_of
from delayq.core.durations import duration_ms
from delayq.core.errors import InvalidInput
from delayq.redis.calls import activity as calls
from delayq.redis.calls.activity import Minutes
from delayq.redis.calls.call import Call, Command, Scope, pages
from delayq.redis.finding import ask_all
from delayq.redis.verbs import Flow, Verbs

SPAN: Final = "1m"
SPANS: Final = 60
AT_ONCE: Final = 500
"""Queues asked in one round trip."""


def activity(verbs: Verbs, queue: str | None, span: str, spans: int, days: int | None) -> Flow[Activity]:
    """What happened on one queue, or on all together."""
    if days is not None:
        if (span, spans) != (SPAN, SPANS):
            raise InvalidInput("`days` was given with `span` or `spans`.", hint="Leave one of them out.")
        return (yield from _history(verbs, queue, days))
    each = _minutes_of(span)
    if not 1 <= spans * each <= DAY_MINUTES or spans < 1:
        raise InvalidInput(
            f"{spans} spans of {span} are not between one minute and 24 hours.", hint="No more than a day is kept."
        )
    found: list[Minutes] = []
    for name in (yield from verbs.queues()) if queue is None else [verbs.scope(queue).queue]:
        parts = yield from ask_all(verbs, name, lambda scope: calls.activity(scope, spans * each))
        found += [part for _, part in parts]
    now_ms = max((part.now_ms for part in found), default=0) or (yield from verbs.server_ms())
    name = "" if queue is None else verbs.scope(queue).queue
    return Activity(name, now_ms, each * MINUTE_MS, tuple(spans_of(_rows(found), now_ms, each, spans)))


def _history(verbs: Verbs, queue: str | None, days: int) -> Flow[Activity]:
    names = (yield from verbs.queues()) if queue is None else [verbs.scope(queue).queue]
    return replace((yield from history(verbs, names, days)), queue=names[0] if queue is not None else "")


def history(verbs: Verbs, queues: Sequence[str], days: int) -> Flow[Activity]:
    """Return the last `days` days of these queues together; one round trip, and a second one when some have shards."""
    if not 1 <= days <= HISTORY_DAYS:
        raise InvalidInput(f"{days} days are not between 1 and {HISTORY_DAYS}.", hint="No more days are kept.")
    rows: dict[int, list[Mapping[str, Any]]] = {}
    now_ms = 0
    for some in pages(queues, AT_ONCE):
        homes = [verbs.shard(name) for name in some]
        answers: list[Any] = yield (*map(verbs.layouts.question, some), *_days_of(homes))
        others = []
        for name, layout in zip(some, answers, strict=False):
            verbs.layouts.learn(name, layout)
            layout = verbs.layouts.of(name)
            others += [verbs.shard(shard, layout) for shard in layout.shards(name)[1:]]
        parts = answers[len(some) :]
        if others:
            parts += yield _days_of(others)
        for part, kept in zip(parts[::2], parts[1::2], strict=True):
            now_ms = max(now_ms, part.now_ms)
            rows.setdefault(part.now_ms // DAY_MS, []).append(not_tallied(part.tallied, part.totals))
            for row in map(row_of, kept):
                if type(day := row.get("day")) is int:
                    rows.setdefault(day, []).append({name: much for name, much in row.items() if name != "day"})
    now_ms = now_ms or (yield from verbs.server_ms())
    return Activity("", now_ms, DAY_MS, tuple(spans_of(rows, now_ms, 1, days, DAY_MS)))


def _days_of(scopes: Sequence[Scope]) -> tuple[Call[Any] | Command[Any], ...]:
    """What each shard has not written down yet, and its days, in turn."""
    return tuple(call for scope in scopes for call in (calls.activity(scope, 1), calls.history(scope)))


def _minutes_of(span: str) -> int:
    minutes, rest = divmod(duration_ms(span), MINUTE_MS)
    if rest or not minutes:
        raise InvalidInput(f"The span {span} is no number of whole minutes.", hint="Use 1m, 5m, 1h.")
    return minutes


def _rows(found: list[Minutes]) -> dict[int, list[Mapping[str, Any]]]:
    """All rows by minute; what happened and is not written down yet belongs to the present one."""
    rows: dict[int, list[Mapping[str, Any]]] = {}
    for part in found:
        rows.setdefault(part.now_ms // MINUTE_MS, []).append(not_tallied(part.tallied, part.totals))
        for minute, raw in part.rows.items():
            rows.setdefault(minute, []).append(row_of(raw, minute))
    return rows
