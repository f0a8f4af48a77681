"""One look at all queues, for metrics: a few round trips to each node, however many jobs and queues there are.

A queue that cannot be read (damaged, or on a node that is away) is named and keeps no other from being seen.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from delayq.core.activity import Spread, joined
from delayq.core.api_keys import covers
from delayq.core.observed import Observed, QueueObserved
from delayq.core.options import Options
from delayq.core.shards import queue_of
from delayq.core.views import QueueStats, urgency
from delayq.redis.calls import activity, inspect
from delayq.redis.calls.call import Call, Command, Scope, text
from delayq.redis.checkup import skew_of
from delayq.redis.connect import Connector
from delayq.redis.keys import Globals
from delayq.redis.send import send_all
from delayq.redis.server_state import server_states
from delayq.redis.whole import silent_of, sum_of

_Asked = Call[Any] | Command[Any]
_SPAN_MS = 1
ASKS: tuple[Callable[[Scope], _Asked], ...] = (
    inspect.stats,
    lambda scope: inspect.upcoming(scope, _SPAN_MS, 1),
    activity.weigh,
    activity.sums,
    activity.promoted_late,
    inspect.silent,
)
"""What each shard is asked."""
SHOWN: Final = 80
"""Queues that are looked at in full; of the others, those that matter less, only the counts are read."""
_WEIGHT = ASKS.index(activity.weigh)
"""The one that some servers and users may not answer; nothing else is missed for it."""


def observe(connector: Connector, options: Options, queues: Sequence[str] = ()) -> Observed:
    """Look at the queues that these names and patterns stand for; none: at all queues.

    Raises `BackendError` when Redis cannot be reached.
    """
    names = Globals(options.prefix)
    known: list[Any] = _ask(
        connector,
        [
            Command(("SMEMBERS", names.queues), lambda reply: sorted(map(text, reply)), True),
            Command(("ZRANGE", names.workers, 0, -1), lambda reply: list(map(text, reply)), True),
        ],
    )
    listed, workers = (found if isinstance(found, list) else [] for found in known)
    shards = [shard for shard in listed if covers(queues, queue_of(shard))]
    rest: list[QueueStats] = []
    if len({queue_of(shard) for shard in shards}) > SHOWN:
        shards, rest = _first(connector, options, shards)
    asked: list[_Asked] = [ask(Scope(options, shard)) for shard in shards for ask in ASKS]
    asked += [Command(("GET", names.worker(name)), partial(inspect.worker, name), True) for name in workers]
    answers = _ask(connector, asked)
    told, here = answers[: len(shards) * len(ASKS)], answers[len(shards) * len(ASKS) :]
    parts = {shard: told[n * len(ASKS) : (n + 1) * len(ASKS)] for n, shard in enumerate(shards)}
    parts_of: dict[str, list[Sequence[Any]]] = {}
    for shard, part in parts.items():
        parts_of.setdefault(queue_of(shard), []).append(part)
    unseen = {queue for queue, some in parts_of.items() if any(map(_failed, some))}
    return Observed(
        tuple(_together(queue, some) for queue, some in parts_of.items() if queue not in unseen),
        _serving(here, without={one.queue for one in rest}),
        tuple(sorted(unseen)),
        servers=tuple(server_states(connector, options.prefix)),
        skew_ms=skew_of(connector),
        rest=tuple(rest),
    )


def _first(connector: Connector, options: Options, shards: Sequence[str]) -> tuple[list[str], list[QueueStats]]:
    """Return the shards of the queues that matter most, and the counts of all other queues."""
    answers = _counts(connector, options, shards)
    parts: dict[str, list[Any]] = {}
    for shard, part in zip(shards, answers, strict=True):
        parts.setdefault(queue_of(shard), []).append(part)
    unread = [queue for queue, some in parts.items() if any(isinstance(part, Exception) for part in some)]
    read = [sum_of(some) for queue, some in parts.items() if queue not in set(unread)]
    read.sort(key=urgency)
    shown = {*unread[:SHOWN], *(one.queue for one in read[: max(0, SHOWN - len(unread))])}
    return [shard for shard in shards if queue_of(shard) in shown], [one for one in read if one.queue not in shown]


def _counts(connector: Connector, options: Options, shards: Sequence[str]) -> list[Any]:
    """Return the counts of each shard, or the error in their place; those that hold nothing are only glanced at."""
    scopes = [Scope(options, shard) for shard in shards]
    glances = _ask(connector, [command for scope in scopes for command in inspect.glance(scope)])
    now_ms = round(time.time() * 1000) - skew_of(connector)
    pairs = list(zip(scopes, glances[::2], glances[1::2], strict=True))
    full = iter(_ask(connector, [inspect.stats(scope) for scope, keys, _ in pairs if keys and not _is_error(keys)]))
    return [
        keys
        if _is_error(keys)
        else next(full)
        if keys
        else kept
        if _is_error(kept)
        else inspect.empty_stats(scope.name, kept, now_ms)
        for scope, keys, kept in pairs
    ]


def _is_error(answer: Any) -> bool:
    return isinstance(answer, Exception)


def _ask(connector: Connector, calls: Sequence[_Asked]) -> list[Any]:
    return connector.call(partial(send_all, calls=calls), safe=True, reads=True) if calls else []


def _failed(part: Sequence[Any]) -> bool:
    return any(isinstance(answer, Exception) for n, answer in enumerate(part) if n != _WEIGHT)


def _together(queue: str, parts: Sequence[Sequence[Any]]) -> QueueObserved:
    stats, upcoming, weights, sums, promoted, held = zip(*parts, strict=True)
    all_stats, span = replace(sum_of(stats), queue=queue), joined(0, sums)
    overdue = sum(one.overdue for one in upcoming) + all_stats.ready
    known = [weight for weight in weights if not isinstance(weight, Exception)]
    weight = sum(known) if len(known) == len(weights) else None
    late = sum(promoted, Spread())
    return QueueObserved(all_stats, overdue, weight, span.late, span.took, late, silent_of(held).count)


def _serving(here: Iterable[Any], without: set[str]) -> dict[str, int]:
    """How many workers serve each queue, by their own words; queues of the rest are left out."""
    found: Counter[str] = Counter()
    for worker in here:
        if worker is not None and not isinstance(worker, Exception):
            found.update(set(map(queue_of, worker.queues)) - without)
    return dict(found)
