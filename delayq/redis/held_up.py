"""Which limits keep a job from running, read from what they wrote down of it. A flow, as those of `verbs`.

A job that was turned away is in its queue as any other. That it waits is known to the limit: the places of a key have
a list of who waits, a rate a turn for each. A circuit keeps no list; that of the job's name is looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from delayq.core.limit_names import limit_of_job
from delayq.core.limit_views import CircuitView, HeldUp, Obstacle, read_circuit
from delayq.redis.calls.call import Command, text
from delayq.redis.keys import Globals, LimitKeys
from delayq.redis.operations import scored
from delayq.redis.verbs import Flow, Verbs

MOST_LIMITS: Final = 60
MOST_KEYS: Final = 200
"""So much is looked at; those of the job's own name first."""
TOGETHER: Final = 16
OWNERS: Final = 3


def held_up(verbs: Verbs, queue: str, job_id: str, job_name: str) -> Flow[list[HeldUp]]:
    """The limits it waits for, and the circuits of its name that are not closed."""
    prefix, me = verbs.options.prefix, f"{queue} {job_id}"
    names: list[str] = yield Command(("SMEMBERS", Globals(prefix).limits), lambda reply: sorted(map(text, reply)), True)
    if not names:
        return []
    own = [limit_of_job(kind, job_name) for kind in ("overlap", "throttle")]
    names = [*(name for name in own if name in names), *(name for name in names if name not in own)][:MOST_LIMITS]
    limits = [LimitKeys(prefix, name) for name in names]
    turns = yield from _each(Command(("ZSCORE", keys.of("turns"), me), _score, True) for keys in limits)
    found = [HeldUp(Obstacle.TURN, keys.name, at_ms=at_ms) for keys, at_ms in zip(limits, turns, strict=True) if at_ms]
    found += yield from _places(limits, me)
    circuit = own[1]
    if circuit in names:
        found += yield from _circuits(verbs, LimitKeys(prefix, circuit))
    return found


def _places(limits: Sequence[LimitKeys], me: str) -> Flow[list[HeldUp]]:
    """The keys whose places it waits for, and who has them."""
    ranges = [("ZRANGE", keys.of("places"), 0, MOST_KEYS - 1, "WITHSCORES") for keys in limits]
    lists = yield from _each(Command(words, scored, True) for words in ranges)
    places = [(keys, key, limit) for keys, pairs in zip(limits, lists, strict=True) for limit, key in pairs][:MOST_KEYS]
    waits = yield from _each(
        Command(("ZSCORE", keys.of_key("waiting", key), me), _score, True) for keys, key, _ in places
    )
    found = []
    for (keys, key, limit), since_ms in zip(places, waits, strict=True):
        if since_ms:
            where = keys.of_key("holders", key)
            holders: list[tuple[int, str]] = yield Command(("ZRANGE", where, 0, -1, "WITHSCORES"), scored, True)
            owners = tuple(holder.rpartition(" ")[0] for _, holder in holders[:OWNERS])
            found.append(HeldUp(Obstacle.PLACE, keys.name, key, since_ms, limit, len(holders), owners))
    return found


def _circuits(verbs: Verbs, keys: LimitKeys) -> Flow[list[HeldUp]]:
    """Those that are open, or being tried."""
    words = ("ZREVRANGE", keys.of("breakers_until"), 0, OWNERS - 1)
    names: list[str] = yield Command(words, lambda reply: list(map(text, reply)), True)
    if not names:
        return []
    records: list[str] = yield Command(("HMGET", keys.of("breakers"), *names), _texts, True)
    now_ms = yield from verbs.server_ms()
    views = [read_circuit(key, record, now_ms) for key, record in zip(names, records, strict=True)]
    return [_circuit(keys.name, view) for view in views if view is not None and view.state != "closed"]


def _circuit(name: str, view: CircuitView) -> HeldUp:
    owners = (view.prober,) if view.prober else ()
    return HeldUp(Obstacle.CIRCUIT, name, view.key, view.until_ms, view.failures, 0, owners)


def _each(commands: Iterable[Command[Any]]) -> Flow[list[Any]]:
    """The answers to all, some of them under way at a time: each takes a connection."""
    every, answers = list(commands), list[Any]()
    for some in _chunks(every):
        answers += yield tuple(some)
    return answers


def _chunks(commands: Sequence[Command[Any]]) -> Iterator[Sequence[Command[Any]]]:
    for start in range(0, len(commands), TOGETHER):
        yield commands[start : start + TOGETHER]


def _score(reply: Any) -> int:
    """A time in epoch ms; 0 = not there."""
    return 0 if reply is None else int(float(reply))


def _texts(reply: Iterable[bytes | None]) -> list[str]:
    return [text(value or b"") for value in reply]
