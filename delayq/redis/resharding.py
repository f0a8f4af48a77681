"""Changes the number of shards of a queue while it lives. Generators like those of `verbs`, which they are given.

    1  the names of the shards that join become known: movers and janitors look after them
    2  each shard that joins gets its stream, its lease, its pause and the new layout     nobody uses it yet
    3  the first shard takes the new layout, in the place of the one that was read        the change happens here
    4  all others take it                                                                 janitors repeat this

Whoever makes the change may die after any of these. Before 3 nothing has happened; what shards know that did not join
is overwritten by the next change, which is newer. After 3 all else is repeated by every janitor (`tend`). Jobs are not
carried about: they stay where they are, and are asked for there until nothing lies by an earlier number any more and
no relay can have been answered there; then a janitor ends the change, which is another layout.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from delayq.core.durability import parse_durability
from delayq.core.errors import Conflict
from delayq.core.leases import check_lease
from delayq.core.shards import PLAIN, Layout
from delayq.core.views import QueueView
from delayq.redis.calls import deliver, inspect
from delayq.redis.calls.call import Command, Scope
from delayq.redis.calls.inspect import NO_WORD, LaidOut
from delayq.redis.finding import ask_every
from delayq.redis.given import QueueSettings
from delayq.redis.keys import Globals
from delayq.redis.verbs import Flow, Verbs
from delayq.redis.whole import configure, show

TRIES: Final = 20


def queue_set(verbs: Verbs, queue: str | None, kept: QueueSettings) -> Flow[QueueView]:
    """Set what a queue keeps for itself; answers what is in force. All is checked before anything is sent."""
    lease, durability, shards = kept.get("lease"), kept.get("durability"), kept.get("shards")
    if lease is not None:
        check_lease(lease)
    if durability is not None:
        parse_durability(durability)
    if shards is not None:
        yield from change(verbs, queue, shards)
    yield from configure(verbs, queue, lease, durability)
    return (yield from show(verbs, queue))


def change(verbs: Verbs, queue: str | None, count: int, before: Sequence[int] = ()) -> Flow[Layout]:
    """Spread a queue over so many shards; the layout in force. By `before` jobs may lie too, whatever is known.

    Raises `InvalidInput` for a number that cannot be, `Conflict` when others change the queue all the time, and
    `BackendDamaged` when nobody can read by which numbers jobs may lie.
    """
    home = verbs.shard(verbs.scope(queue).queue)
    PLAIN.changed(count, 0)
    yield from verbs.register(home.queue)
    yield inspect.configure(home, None)
    at_ms = yield from verbs.server_ms()
    for _ in range(TRIES):
        seen: LaidOut = yield inspect.lay_out(home, PLAIN, NO_WORD)
        if not seen.readable:
            raise verbs.layouts.unreadable(home.queue)
        wanted = seen.layout
        if wanted.count == count and {count, *wanted.before}.issuperset(before):
            break
        wanted = wanted.changed(count, at_ms, before)
        newer = yield from _prepare(verbs, home.queue, seen, wanted)
        if newer:
            at_ms = newer + 1
            continue
        said: LaidOut = yield inspect.lay_out(home, wanted, seen, instead=True)
        if said.layout == wanted:
            break
    else:
        raise Conflict(f"The queue {home.queue!r} is being changed by somebody else all the time.", hint="Try again.")
    verbs.layouts.learn(home.queue, wanted)
    yield from spread(verbs, home.queue, wanted)
    return wanted


def _prepare(verbs: Verbs, queue: str, seen: LaidOut, wanted: Layout) -> Flow[int]:
    """Make the shards ready that join; the epoch of a newer layout that one of them knows, or 0."""
    joining = [verbs.shard(name) for name in wanted.shards(queue)[seen.layout.listed :]]
    if not joining:
        return 0
    yield Command(("SADD", Globals(verbs.options.prefix).queues, *wanted.shards(queue)), int)
    answers: list[LaidOut] = yield from ask_every(joining, lambda scope: inspect.lay_out(scope, wanted, seen))
    newer = (
        max(answer.layout.epoch for answer in answers if answer.layout != wanted) if _differs(answers, wanted) else 0
    )
    if not newer:
        yield from ask_every(joining, deliver.tidy)
    return newer


def _differs(answers: list[LaidOut], wanted: Layout) -> bool:
    return any(answer.layout != wanted for answer in answers)


def layout_in(verbs: Verbs, shard: str) -> Flow[Layout]:
    """The layout as one shard knows it."""
    seen: LaidOut = yield inspect.lay_out(verbs.shard(shard), PLAIN, NO_WORD)
    return seen.layout


def spread(verbs: Verbs, queue: str, layout: Layout) -> Flow[bool]:
    """Tell every shard the layout, and movers all names; whether all shards know it, and nothing newer.

    The first one had it when it was heard of; should that have been lost, it has it again.
    """
    names = layout.shards(queue)
    yield Command(("SADD", Globals(verbs.options.prefix).queues, *names), int)
    shards: list[Scope] = [verbs.shard(name) for name in names]
    answers: list[LaidOut] = yield from ask_every(shards, lambda scope: inspect.lay_out(scope, layout, NO_WORD))
    return not _differs(answers, layout)


def end(verbs: Verbs, queue: str, layout: Layout) -> Flow[bool]:
    """Write down that nothing lies by an earlier number any more; whether that counts.

    For a caller that found it so in every shard after all of them knew `layout`. The shards left over are forgotten.
    """
    home = verbs.shard(queue)
    seen: LaidOut = yield inspect.lay_out(home, PLAIN, NO_WORD)
    if seen.layout != layout:
        return False
    ended = layout.ended((yield from verbs.server_ms()))
    said: LaidOut = yield inspect.lay_out(home, ended, seen, instead=True)
    if said.layout != ended:
        return False
    verbs.layouts.learn(queue, ended)
    if gone := layout.shards(queue)[ended.listed :]:
        yield Command(("SREM", Globals(verbs.options.prefix).queues, *gone), int)
    yield from spread(verbs, queue, ended)
    return True
