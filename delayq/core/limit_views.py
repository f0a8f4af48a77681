"""What is told of limits: who holds places, how much of a rate is left, how circuits stand. Read from their records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple


class HolderView(NamedTuple):
    """A delivery that holds a place. Not `live`: its job has another entry by now; the place is free when asked for.

    What somebody else wrote there has neither queue nor entry: its `id` is all of it.
    """

    queue: str
    id: str
    entry: str
    since_ms: int
    live: bool


@dataclass(frozen=True, slots=True)
class PlacesView:
    """The places of one key. Times, here and below, are epoch ms. `holders` are the oldest hundred of the `held`."""

    key: str
    limit: int
    held: int
    waiting: int
    holders: tuple[HolderView, ...]


@dataclass(frozen=True, slots=True)
class RateView:
    """A rate: `used` of `most` in `per_ms`; of a bucket, how many starts it lacks. `free_ms`: when the next is free.

    `line_ms`: the next turn that would be given to a job that has to wait; 0 = nobody waits.
    """

    key: str
    kind: str
    most: int
    per_ms: int
    used: int
    free_ms: int
    line_ms: int


@dataclass(frozen=True, slots=True)
class CircuitView:
    """`state`: closed, open (until `until_ms`), or half-open (then `prober` tries, queue and id, if anybody does)."""

    key: str
    state: str
    failures: int
    until_ms: int
    prober: str


@dataclass(frozen=True, slots=True)
class LimitView:
    """One limit: at most a hundred keys of each kind. `turns` counts jobs that wait for their turn at a rate."""

    name: str
    places: tuple[PlacesView, ...]
    rates: tuple[RateView, ...]
    circuits: tuple[CircuitView, ...]
    turns: int
    counters: Mapping[str, int]


class Obstacle(Enum):
    """What of a limit a job waits for."""

    PLACE = auto()
    TURN = auto()
    CIRCUIT = auto()


class HeldUp(NamedTuple):
    """A limit that keeps a job from running.

    `at_ms`: since when it waits for a place; when its turn is; until when the circuit is open. `number`: the places
    there are, of which `held` are taken; the failures of the circuit. `owners`: some who have a place, or who tries the
    circuit, queue and id.
    """

    obstacle: Obstacle
    name: str
    key: str = ""
    at_ms: int = 0
    number: int = 0
    held: int = 0
    owners: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Freed:
    """What was freed by hand: places by holder (queue and id), and whether a rate or a circuit was set to nothing."""

    holders: tuple[str, ...]
    rate: bool
    circuit: bool


def read_rate(key: str, record: str, now_ms: int) -> RateView | None:
    """A rate as `admit` keeps it; None for what it did not write."""
    words = record.split(" ")
    try:
        kind, most, per_ms, line = words[0], int(words[1]), int(words[2]), float(words[3])
        pairs = [(float(at), int(count)) for at, _, count in (word.partition(":") for word in words[5:] if word)]
    except (IndexError, ValueError):
        return None
    line_ms = int(line) if line > now_ms else 0
    if kind == "bucket":
        gap = per_ms / most
        full, burst = pairs[0] if pairs else (0.0, most)
        free = full - (burst - 1) * gap
        used = max(0, -int(-(full - now_ms) // gap))
        return RateView(key, kind, most, per_ms, used, max(now_ms, int(free)), line_ms)
    kept = [(at, count) for at, count in pairs if at + per_ms > now_ms]
    used = sum(count for _, count in kept)
    free_ms = now_ms if used < most else int(kept[0][0] + per_ms)
    return RateView(key, kind, most, per_ms, used, free_ms, line_ms)


def read_circuit(key: str, record: str, now_ms: int) -> CircuitView | None:
    """A circuit as `report` keeps it; None for what it did not write."""
    lines = record.split("\n")
    if len(lines) != 6 or not all(line.isdigit() for line in lines[:4]):
        return None
    failures, _, until_ms, decay_ms = map(int, lines[:4])
    if until_ms == 0:
        return CircuitView(key, "closed", failures, 0, "")
    until_ms = min(until_ms, now_ms + decay_ms)
    state = "open" if until_ms > now_ms else "half-open"
    return CircuitView(key, state, failures, until_ms, lines[5].rpartition(" ")[0])
