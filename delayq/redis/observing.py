"""One look at all queues, for metrics: a few round trips to each node, however many jobs there are.

A queue that cannot be read (damaged, or on a node that is away) is named and keeps no other from being seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from delayq.core.activity import Spread, joined
from delayq.core.observed import Observed, QueueObserved
from delayq.core.options import Options
from delayq.core.shards import queue_of
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
_WEIGHT = ASKS.index(activity.weigh)
"""The one that some servers and users may not answer; nothing else is missed for it."""


def observe(connector: Connector, options: Options) -> Observed:
    """Look. Raises `BackendError` when Redis cannot be reached."""
    names = Globals(options.prefix)
    known: list[Any] = _ask(
        connector,
        [
            Command(("SMEMBERS", names.queues), lambda reply: sorted(map(text, reply)), True),
            Command(("ZRANGE", names.workers, 0, -1), lambda reply: list(map(text, reply)), True),
        ],
    )
    shards, workers = (found if isinstance(found, list) else [] for found in known)
    asked: list[_Asked] = [ask(Scope(options, shard)) for shard in shards for ask in ASKS]
    asked += [Command(("GET", names.worker(name)), partial(inspect.worker, name), True) for name in workers]
    answers = _ask(connector, asked)
    told, here = answers[: len(shards) * len(ASKS)], answers[len(shards) * len(ASKS) :]
    parts = {shard: told[n * len(ASKS) : (n + 1) * len(ASKS)] for n, shard in enumerate(shards)}
    queues: dict[str, list[Sequence[Any]]] = {}
    for shard, part in parts.items():
        queues.setdefault(queue_of(shard), []).append(part)
    unseen = {queue for queue, some in queues.items() if any(map(_failed, some))}
    return Observed(
        tuple(_together(queue, some) for queue, some in queues.items() if queue not in unseen),
        _serving(here),
        tuple(sorted(unseen)),
        servers=tuple(server_states(connector, options.prefix)),
        skew_ms=skew_of(connector),
    )


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


def _serving(here: Iterable[Any]) -> dict[str, int]:
    """How many workers serve each queue, by their own words."""
    found: Counter[str] = Counter()
    for worker in here:
        if worker is not None and not isinstance(worker, Exception):
            found.update(set(map(queue_of, worker.queues)))
    return dict(found)
