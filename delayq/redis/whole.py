"""Verbs on a whole queue: all its shards together. Generators like those of `verbs`, which they are given.

What is counted is counted shard by shard, so a sum over several is of no single moment.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from delayq.core.durability import parse_durability
from delayq.core.durations import duration_ms
from delayq.core.errors import DelayqError, QueueInUse, QueueNotFound
from delayq.core.leases import check_lease
from delayq.core.shards import PLAIN, next_cursor, read_cursor
from delayq.core.states import State
from delayq.core.views import Page, QueueStats, QueueView, ShardView, Silent, Upcoming
from delayq.redis.calls import deliver, inspect, produce
from delayq.redis.calls.call import Command, Scope
from delayq.redis.finding import FEW, Ask, ask_all, ask_every, ask_in_each, every_shard, shards_of_each, while_any
from delayq.redis.keys import Globals
from delayq.redis.relaying import Relaying
from delayq.redis.verbs import Flow, Verbs

log = logging.getLogger("delayq.redis")


def list_jobs(verbs: Verbs, state: State, queue: str | None, cursor: str, limit: int) -> Flow[Page]:
    """One page of the jobs in one state, in their order; of a sharded queue shard by shard."""
    scopes = yield from every_shard(verbs, verbs.scope(queue).queue)
    number, after = read_cursor(cursor)
    if number >= len(scopes):  # the queue had more shards when the cursor was made; nothing lies there any more
        return Page((), "")
    page: Page = yield inspect.list_jobs(scopes[number], state, after, max(1, min(limit, produce.MAX_JOBS)))
    return Page(page.jobs, next_cursor(number, page.cursor, len(scopes)))


def stats(verbs: Verbs, queue: str | None) -> Flow[list[QueueStats]]:
    """Counts of one queue, or of all known: these in two round trips, however many there are."""
    return (yield from stats_of(verbs, (yield from verbs.queues()) if queue is None else [verbs.scope(queue).queue]))


def stats_of(verbs: Verbs, queues: Sequence[str]) -> Flow[list[QueueStats]]:
    """Return the counts of these queues, in their order. Of many, the empty ones are only glanced at."""
    if len(queues) <= FEW:
        found = yield from ask_in_each(verbs, queues, inspect.stats)
        return [sum_of(parts) for parts in found]
    shards = yield from shards_of_each(verbs, queues)
    scopes = [scope for some in shards for scope in some]
    glances: list[Any] = yield tuple(command for scope in scopes for command in inspect.glance(scope))
    now_ms = yield from verbs.server_ms()
    holding = [scope for scope, keys in zip(scopes, glances[::2], strict=True) if keys]
    asked = iter((yield from ask_every(holding, inspect.stats)))
    answers = (
        next(asked) if keys else inspect.empty_stats(scope.name, kept, now_ms)
        for scope, keys, kept in zip(scopes, glances[::2], glances[1::2], strict=True)
    )
    return [sum_of([next(answers) for _ in some]) for some in shards]


def stats_and_silent(verbs: Verbs) -> Flow[list[tuple[QueueStats, Silent]]]:
    """Return the counts of all known queues, each with the jobs of workers that are silent."""
    found = yield from stats(verbs, None)
    busy = [one.queue for one in found if one.reserved]
    asked = yield from ask_in_each(verbs, busy, inspect.silent)
    held = {queue: silent_of(parts) for queue, parts in zip(busy, asked, strict=True)}
    return [(one, held.get(one.queue, Silent())) for one in found]


def sum_of(parts: Sequence[QueueStats]) -> QueueStats:
    """Of all shards: counts added up, the oldest of what is overdue, the mover that was here least lately."""
    first, *others = parts
    if not others:
        return first
    counters: Counter[str] = Counter()
    for part in parts:
        counters.update(part.counters)
    return replace(
        first,
        scheduled=sum(part.scheduled for part in parts),
        ready=sum(part.ready for part in parts),
        reserved=sum(part.reserved for part in parts),
        failed=sum(part.failed for part in parts),
        completed=sum(part.completed for part in parts),
        overdue_oldest_ms=max(part.overdue_oldest_ms for part in parts),
        mover_tick_ms=min(part.mover_tick_ms for part in parts),
        counters=dict(counters),
    )


def silent(verbs: Verbs, queue: str) -> Flow[Silent]:
    """Delivered jobs of a queue whose holder has been silent for longer than its lease."""
    return silent_of([part for _, part in (yield from ask_all(verbs, verbs.scope(queue).queue, inspect.silent))])


def silent_of(parts: Sequence[Silent]) -> Silent:
    """Of all shards together, the longest silence first."""
    jobs = sorted((job for part in parts for job in part.jobs), key=lambda job: -job.silent_ms)
    return Silent(sum(part.count for part in parts), tuple(jobs))


def upcoming(verbs: Verbs, queue: str | None, span: str, spans: int) -> Flow[Upcoming]:
    """A histogram of due times."""
    span_ms = max(1, duration_ms(span))
    asked = yield from ask_all(verbs, verbs.scope(queue).queue, lambda scope: inspect.upcoming(scope, span_ms, spans))
    parts = [part for _, part in asked]
    counts = tuple(map(sum, zip(*(part.counts for part in parts), strict=True)))
    overdue, later = sum(part.overdue for part in parts), sum(part.later for part in parts)
    return replace(parts[0], overdue=overdue, counts=counts, later=later)


def show(verbs: Verbs, queue: str | None) -> Flow[QueueView]:
    """What a queue keeps for itself, and how much lies in each shard.

    Raises `BackendDamaged` when nobody can read how many shards it has.
    """
    name = verbs.scope(queue).queue
    yield from verbs.layouts.check(name)
    parts = yield from ask_all(verbs, name, inspect.stats)
    home, first = parts[0]
    layout = home.layout
    held = tuple(ShardView(scope.queue, one.scheduled, one.load, one.failed, one.completed) for scope, one in parts)
    since_ms = layout.epoch or None
    return QueueView(name, first.lease_ms, first.paused_until_ms, layout.count, since_ms, layout.before, held)


def configure(verbs: Verbs, queue: str | None, lease: str | None, durability: str | None = None) -> Flow[int]:
    """Set what a queue keeps for itself; answers the lease in force, in ms."""
    lease_ms, name = None if lease is None else check_lease(lease), verbs.scope(queue).queue
    safe = "" if durability is None else str(parse_durability(durability))
    yield from verbs.register(name)
    in_force = yield from in_all(verbs, name, lambda scope: inspect.configure(scope, lease_ms, safe))
    yield from verbs.register_anew(name)  # it may have been removed meanwhile, and producers see no new queue now
    return in_force


def durability(verbs: Verbs, queue: str | None) -> Flow[str]:
    """What is waited for on a queue, for calls that do not say."""
    name = verbs.scope(queue).queue
    verbs.durable.forget(name)
    return str((yield from verbs.durable.wanted(verbs.shard(name), None)))


def in_all(verbs: Verbs, queue: str, ask: Ask[int]) -> Flow[int]:
    """Say something to every shard of a queue, the first one first; answers what that one did.

    The layout is read after it was said there: who changes it later does so in the place of what the first shard has
    by then, and so tells it to the shards that join.
    """
    said: int = yield ask(verbs.shard(queue))
    _, *others = yield from every_shard(verbs, queue)
    yield from ask_every(others, ask)
    return said


def prune_failed(verbs: Verbs, queue: str | None, older: str) -> Flow[int]:
    """Forget jobs that failed that long ago; answers how many."""
    keep_ms, dropped = duration_ms(older), 0
    for scope in (yield from every_shard(verbs, verbs.scope(queue).queue)):
        while True:
            pruned: deliver.Pruned = yield deliver.prune(scope, keep_ms)
            dropped += pruned.failed
            if pruned.failed < deliver.PAGE:
                break
    return dropped


def clear(verbs: Verbs, queue: str | None) -> Flow[int]:
    """Drop everything that waits; answers how many jobs.

    What follows these ends is carried from here: the queue may have no worker. Nobody is in trouble when that fails; a
    relay does it later.
    """
    scopes = yield from every_shard(verbs, verbs.scope(queue).queue)
    dropped = yield from while_any(scopes, inspect.clear)
    relaying = Relaying(verbs)
    for scope in scopes:
        try:
            done = yield from relaying.relay(scope.queue)
        except DelayqError as error:
            log.warning("what follows the jobs dropped from the queue %s is left to a relay: %s", scope.name, error)
        else:
            for line in done.trouble:
                log.warning("%s", line)
    return dropped


def remove(verbs: Verbs, queue: str, serving: Sequence[str]) -> Flow[None]:
    """Forget a queue that holds nothing. `serving`: the live workers that serve it.

    Raises `QueueNotFound` and `QueueInUse`. The scripts run before and after the name is taken off the list. The first
    run makes each later `schedule` register the queue again. The second run finds a job whose producer registered the
    queue before the name was taken off. Nothing is taken off the list after it: a producer may have registered the
    queue since.
    """
    name = verbs.scope(queue).queue
    if name not in (yield from verbs.queues()):
        raise QueueNotFound(f"No queue {name!r} is known.", hint="See which there are: delayq stats")
    if serving:
        raise QueueInUse(
            f"The queue {name!r} is served by the worker {serving[0]}.",
            hint="Stop its workers first, or start them without this queue: they would register it again.",
        )
    scopes = yield from every_shard(verbs, name)
    _refuse_holding(name, (yield from ask_every(scopes, partial(inspect.remove, look=True))))
    known: inspect.LaidOut = yield inspect.lay_out(scopes[0], PLAIN, inspect.NO_WORD)
    yield from _remove_empty(verbs, name, scopes, known)
    yield Command(("SREM", Globals(verbs.options.prefix).queues, *(scope.queue for scope in scopes)), int)
    yield from _remove_empty(verbs, name, scopes, known)
    verbs.layouts.forget(name)
    verbs.durable.forget(name)
    for scope in scopes:
        verbs.forget_registered(scope.queue)


def _remove_empty(verbs: Verbs, queue: str, scopes: Sequence[Scope], known: inspect.LaidOut) -> Flow[None]:
    """Remove each shard, the first one, which knows the others, last. Raises `QueueInUse` when one holds a job.

    Then the queue is on the list again, and the shards that were removed already know again what they knew.
    """
    for scope in reversed(scopes):
        holds: inspect.Holds = yield inspect.remove(scope)
        if str(holds):
            yield Command(("SADD", Globals(verbs.options.prefix).queues, *(one.queue for one in scopes)), int)
            yield from ask_every(scopes, lambda one: inspect.lay_out(one, known.layout, known))
            _refuse_holding(queue, [holds])


def _refuse_holding(queue: str, holds: Sequence[inspect.Holds]) -> None:
    """Raises `QueueInUse` unless all shards are empty."""
    total = inspect.Holds(*map(sum, zip(*holds, strict=True)))
    if str(total):
        raise QueueInUse(
            f"The queue {queue!r} holds jobs: {total}.",
            hint=f"Empty it first: delayq clear --queue {queue}, delayq failed flush --queue {queue}.",
        )


def undo_if_removed(verbs: Verbs, shard: str) -> Flow[None]:
    """Take back the empty frame that a janitor made for a queue that was removed since it read the list of queues.

    Left behind, it would look like a known queue, and a producer that has registered it before would not do so again.
    """
    if shard in (yield from verbs.shards()):
        return
    listed = Globals(verbs.options.prefix).queues
    holds: inspect.Holds = yield inspect.remove(verbs.shard(shard))
    if str(holds):
        yield Command(("SADD", listed, shard), int)
