"""The verb that tells what happened, over all shards of a queue or over all queues; and its two shells."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from delayq.core.activity import DAY_MINUTES, DAY_MS, HISTORY_DAYS, MINUTE_MS, Activity, not_tallied, row_of, spans_of
from delayq.core.durations import duration_ms
from delayq.core.errors import InvalidInput
from delayq.redis.calls import activity as calls
from delayq.redis.calls.activity import Minutes
from delayq.redis.finding import ask_all
from delayq.redis.verbs import Flow, Verbs

SPAN: Final = "1m"
SPANS: Final = 60


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
    if not 1 <= days <= HISTORY_DAYS:
        raise InvalidInput(f"{days} days are not between 1 and {HISTORY_DAYS}.", hint="No more days are kept.")
    rows: dict[int, list[Mapping[str, Any]]] = {}
    now_ms = 0
    for name in (yield from verbs.queues()) if queue is None else [verbs.scope(queue).queue]:
        for _, part in (yield from ask_all(verbs, name, lambda scope: calls.activity(scope, 1))):
            now_ms = max(now_ms, part.now_ms)
            rows.setdefault(part.now_ms // DAY_MS, []).append(not_tallied(part.tallied, part.totals))
        for _, kept in (yield from ask_all(verbs, name, calls.history)):
            for raw in kept:
                row = row_of(raw)
                if type(day := row.get("day")) is int:
                    rows.setdefault(day, []).append({name: much for name, much in row.items() if name != "day"})
    now_ms = now_ms or (yield from verbs.server_ms())
    name = "" if queue is None else verbs.scope(queue).queue
    return Activity(name, now_ms, DAY_MS, tuple(spans_of(rows, now_ms, 1, days, DAY_MS)))


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
