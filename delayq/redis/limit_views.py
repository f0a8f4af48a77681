"""Limits for people: look at them, and free what must not be held any longer. Flows over the verbs they are given."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Final

from delayq.core.audit import Deed, check_reason
from delayq.core.errors import BackendDamaged, InvalidName, LimitNotFound
from delayq.core.limit_names import check_limit
from delayq.core.limit_views import (
    CircuitView,
    Freed,
    HolderView,
    LimitView,
    PlacesView,
    RateView,
    read_circuit,
    read_rate,
)
from delayq.core.limiting import Place
from delayq.core.shown import shown
from delayq.redis.audit import Audit
from delayq.redis.calls.call import Argument, Command, text
from delayq.redis.holders import parts_of
from delayq.redis.keys import Globals, LimitKeys
from delayq.redis.limiting import LimitVerbs
from delayq.redis.operations import scored
from delayq.redis.verbs import Flow, Verbs

log = logging.getLogger(__name__)

MOST: Final = 100
NAMED: Final = 10
"""So many keys a refusal names."""
COUNTERS: Final = ("taken_total", "blocked_total", "opened_total")


class LimitViews:
    """Of one prefix."""

    def __init__(self, verbs: Verbs) -> None:
        self._verbs = verbs
        self._limits = LimitVerbs(verbs)
        self._audit = Audit(verbs)

    def names(self) -> Flow[list[str]]:
        """All limits that were asked, sorted."""
        where = Globals(self._verbs.options.prefix).limits
        names: list[str] = yield Command(("SMEMBERS", where), lambda reply: sorted(map(text, reply)), True)
        return names

    def every(self) -> Flow[list[LimitView]]:
        """All of them; one that somebody else wrote over is left out, so that the others can still be looked at."""
        found: list[LimitView] = []
        for name in (yield from self.names()):
            try:
                found += [(yield from self.one(name))]
            except (BackendDamaged, InvalidName) as error:
                log.warning("the limit %s is left out: it cannot be read: %s", shown(name), error)
        return found

    def one(self, name: str) -> Flow[LimitView]:
        """One limit; empty when nothing is kept for it."""
        keys = LimitKeys(self._verbs.options.prefix, check_limit(name))
        now_ms = yield from self._verbs.server_ms()
        places = yield from self._places(keys)
        rates = yield from self._records(keys, "rates")
        circuits = yield from self._records(keys, "breakers")
        turns: int = yield Command(("ZCARD", keys.of("turns")), int, True)
        counted: list[str] = yield Command(("HMGET", keys.of("counters"), *COUNTERS), _texts, True)
        rated = [rate for key, record in rates if (rate := read_rate(key, record, now_ms))]
        broken = [circuit for key, record in circuits if (circuit := read_circuit(key, record, now_ms))]
        counters = {word: int(count) for word, count in zip(COUNTERS, counted, strict=True) if count.isdigit()}
        return LimitView(name, places, tuple(rated), tuple(broken), turns, counters)

    def free(self, name: str, key: str, holder: str | None, reason: str) -> Flow[Freed]:
        """Free what a key of a limit keeps: all of it, or the place that the job `holder` (an id) has.

        The reason is on record before anything is freed. Raises `InvalidInput` without one, `LimitNotFound` when there
        is nothing to be freed.
        """
        deed = Deed("limit free", f"{name} {key}".rstrip(), check_reason(reason), holder or "everything")
        view = yield from self.one(name)
        mine = [place for place in view.places if place.key == key]
        held = [(one, place) for place in mine for one in place.holders if holder in (None, one.id)]
        rates = [rate for rate in view.rates if holder is None and _is_of(rate, key)]
        circuits = [circuit for circuit in view.circuits if holder is None and circuit.key == key]
        if not (held or rates or circuits):
            raise _nothing(view, key, holder)

        def act() -> Flow[None]:
            for one, place in held:
                at = Place(name, key, place.limit)
                yield from self._limits.vacate(at, " ".join(filter(None, (one.queue, one.id, one.entry))))
            keys = LimitKeys(self._verbs.options.prefix, name)
            yield from _forget(keys, "rates", [rate.key for rate in rates])
            yield from _forget(keys, "breakers", [circuit.key for circuit in circuits])

        yield from self._audit.around(deed, act())
        return Freed(tuple(f"{one.queue} {one.id}" for one, _ in held), bool(rates), bool(circuits))

    def _places(self, keys: LimitKeys) -> Flow[tuple[PlacesView, ...]]:
        limits: list[tuple[int, str]] = yield Command(
            ("ZRANGE", keys.of("places"), 0, MOST - 1, "WITHSCORES"), scored, True
        )
        found = []
        for limit, key in limits:
            where = keys.of_key("holders", key)
            held: int = yield Command(("ZCARD", where), int, True)
            waiting: int = yield Command(("ZCARD", keys.of_key("waiting", key)), int, True)
            since: list[tuple[int, str]] = yield Command(("ZRANGE", where, 0, MOST - 1, "WITHSCORES"), scored, True)
            stale = set((yield from self._limits.holders.gone([holder for _, holder in since])))
            holders = [HolderView(*parts_of(holder), at, holder not in stale) for at, holder in since]
            found.append(PlacesView(key, limit, held, waiting, tuple(holders)))
        return tuple(found)

    def _records(self, keys: LimitKeys, role: str) -> Flow[list[tuple[str, str]]]:
        """Keys and records of rates or circuits; those that end last."""
        names: list[str] = yield Command(("ZREVRANGE", keys.of(f"{role}_until"), 0, MOST - 1), _texts, True)
        if not names:
            return []
        records: list[str] = yield Command(("HMGET", keys.of(role), *names), _texts, True)
        return list(zip(names, records, strict=True))


def _forget(keys: LimitKeys, role: str, names: Sequence[str]) -> Flow[None]:
    if names:
        for command, where in (("HDEL", keys.of(role)), ("ZREM", keys.of(f"{role}_until"))):
            words: tuple[Argument, ...] = (command, where, *names)
            yield Command(words, int)


def _is_of(rate: RateView, key: str) -> bool:
    """Whether a rate counts for that key: several of one key have a number behind it."""
    head, _, number = rate.key.rpartition("#")
    return rate.key == key or (head == key and number.isdigit())


def _nothing(view: LimitView, key: str, holder: str | None) -> LimitNotFound:
    of_whom = f"the key {shown(key)} of the limit {view.name}" if key else f"the limit {view.name}"
    every: tuple[PlacesView | RateView | CircuitView, ...] = (*view.places, *view.rates, *view.circuits)
    known = sorted({one.key for one in every})
    hint = f"Known keys: {_some(known)}." if key not in known else "`delayq limit show` tells who does."
    if holder is not None:
        return LimitNotFound(f"The job {shown(holder)} holds no place of {of_whom}.", hint=hint)
    return LimitNotFound(f"Nothing is held or counted for {of_whom}.", hint=hint)


def _some(keys: Sequence[str]) -> str:
    """The first of them; each may be long, and there may be thousands."""
    more = [f"and {len(keys) - NAMED:,} more"] if len(keys) > NAMED else []
    return ", ".join([*map(shown, keys[:NAMED]), *more]) or "none"


def _texts(reply: Iterable[bytes | None]) -> list[str]:
    return [text(value or b"") for value in reply]
