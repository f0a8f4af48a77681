"""What jobs ask about limits: places, rates, circuits. Their keys lie in slots of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

from delayq.core.limiting import Admit, Admitted, Circuit, Place, Probe, Report, Who
from delayq.core.rate_limit import fields_of
from delayq.redis.calls.call import Argument, Call, Nature, Scope, call, text
from delayq.redis.calls.deliver import Held
from delayq.redis.keys import LimitKeys
from delayq.redis.scripts import Script, load

T = TypeVar("T")

MOST_WAITING = 10_000


class Got(NamedTuple):
    """`others` are waiters to be woken when the place was taken, else holders of this and the other places."""

    taken: bool
    waiting: int
    others: tuple[str, ...]


def acquire(scope: Scope, place: Place, who: Who, stale: Sequence[str] = ()) -> Call[Got]:
    """Take a place. `stale` holders are removed first."""
    args: list[Argument] = [scope.now, place.key, place.limit, who.holder, who.job, place.expire_ms, *stale]
    return _call("acquire", scope, place.name, args, _got, key=place.key)


def _got(reply: list[Any]) -> Got:
    if reply[0] == 1:
        return Got(True, 0, tuple(map(text, reply[1:])))
    return Got(False, int(reply[1]), tuple(map(text, reply[2:])))


class Left(NamedTuple):
    """Whether a place was held, and who is to be woken ('' = nobody)."""

    held: bool
    woken: str


def vacate(scope: Scope, place: Place, holder: str) -> Call[Left]:
    """Give a place back; `holder` '' asks only for the next one to be woken."""
    args: list[Argument] = [place.key, place.limit, holder]
    return _call("vacate", scope, place.name, args, lambda reply: Left(reply[0] == 1, text(reply[1])), key=place.key)


def line_up(scope: Scope, place: Place, who: Who) -> Call[bool]:
    """Wait for a place; True when there is one by now."""
    args: list[Argument] = [scope.now, place.key, place.limit, who.job, MOST_WAITING]
    return _call("line_up", scope, place.name, args, lambda reply: bool(reply == 1), key=place.key)


class Kept(NamedTuple):
    """The lease of a queue, and for each job for how long nobody renewed it; None when it has another entry or none."""

    lease_ms: int
    idle_ms: tuple[int | None, ...]


def kept(scope: Scope, held: Sequence[Held]) -> Call[Kept]:
    """Whether jobs of one queue are still held under these entries, and how well they are kept."""
    args: list[Argument] = [scope.options.lease_ms]
    for one in held:
        args += one
    return call("kept", scope, args, _kept, nature=Nature.READS)


def _kept(reply: list[int]) -> Kept:
    return Kept(reply[0], tuple(None if idle < 0 else idle for idle in reply[1:]))


def admit(scope: Scope, asked: Admit) -> Call[Admitted]:
    """Count a start against rate limits."""
    args: list[Argument] = [scope.now, asked.who.job, asked.who.entry, int(asked.line)]
    for rate, field in zip(asked.rates, fields_of(asked.rates), strict=True):
        args += (field, rate.kind, rate.most, rate.per_ms, rate.burst)
    return _call("admit", scope, asked.name, args, lambda reply: Admitted(reply[0] == 1, int(reply[1])))


class Asked(NamedTuple):
    """How a circuit stands; `number` is ms when it is open, else failures; `prober` who tries."""

    circuit: Circuit
    number: int
    prober: str


def probe(scope: Scope, asked: Probe, stale: Sequence[str] = ()) -> Call[Asked]:
    """Ask for a call. `stale` ones do not count as trying."""
    return _call("probe", scope, asked.name, [scope.now, asked.key, asked.who.holder, *stale], _asked)


def _asked(reply: list[Any]) -> Asked:
    circuit = Circuit(text(reply[0]))
    if circuit is Circuit.PROBING:
        return Asked(circuit, 0, text(reply[1]))
    return Asked(circuit, int(reply[1]), "")


def report(scope: Scope, asked: Report) -> Call[bool]:
    """Tell how a call went; whether the circuit is open now."""
    args: list[Argument] = [scope.now, asked.key, asked.who.holder, asked.verdict, asked.most, asked.decay_ms]
    return _call("report", scope, asked.name, args, lambda reply: bool(reply[0] == 1))


def _call(
    script: str, scope: Scope, name: str, args: Sequence[Argument], parse: Callable[[Any], T], *, key: str | None = None
) -> Call[T]:
    loaded, roles = _roles(script)
    keys = LimitKeys(scope.options.prefix, name)
    placed = tuple(keys.of_key(role, key or "") if role in LimitKeys.PER_KEY else keys.of(role) for role in roles)
    return Call(loaded, placed, tuple(args), parse)


@lru_cache(maxsize=64)
def _roles(script: str) -> tuple[Script, tuple[str, ...]]:
    loaded = load(script)
    return loaded, loaded.keys
