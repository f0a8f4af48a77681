"""limit list, show, free; audit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from delayq.cli import limit_shapes as shapes
from delayq.cli.actions.look import local_ms
from delayq.cli.session import Session
from delayq.cli.words import count, distance, span
from delayq.core.errors import LimitNotFound
from delayq.core.limit_views import CircuitView, LimitView, PlacesView
from delayq.core.shapes import deed
from delayq.core.when import format_instant

_HEADS = ("limit", "key", "kind", "used", "waiting", "free")


class Target(NamedTuple):
    """What is to be freed."""

    name: str
    key: str
    holder: str | None


def list_limits(session: Session, *, as_json: bool) -> None:
    """All limits, a line for each key."""
    with session.client() as client:
        views = client.limits.all()
    if as_json:
        for view in views:
            session.out.json(shapes.limit(view))
        return
    now_ms = local_ms()
    session.out.table(_HEADS, [row for view in views for row in _rows(view, now_ms)], numbers=("waiting",))


def _rows(view: LimitView, now_ms: int) -> Iterator[tuple[str, ...]]:
    for place in view.places:
        yield view.name, place.key, "places", f"{place.held} of {place.limit}", str(place.waiting), _places_free(place)
    for rate in view.rates:
        used = f"{rate.used} of {rate.most} in {span(rate.per_ms)}"
        waiting = str(view.turns) if rate.line_ms else "0"
        yield view.name, rate.key, rate.kind, used, waiting, _when(max(rate.free_ms, rate.line_ms), now_ms)
    for circuit in view.circuits:
        free = _when(circuit.until_ms, now_ms) if circuit.state == "open" else _tried(circuit)
        yield view.name, circuit.key, "circuit", f"{count(circuit.failures, 'failure')}, {circuit.state}", "", free
    if not (view.places or view.rates or view.circuits):
        yield view.name, "", "", "", "", "now"


def _places_free(place: PlacesView) -> str:
    stale = sum(not holder.live for holder in place.holders)
    return "now" if place.held - stale < place.limit else "when one ends"


def _tried(circuit: CircuitView) -> str:
    return f"{circuit.prober} tries" if circuit.prober else "now"


def _when(at_ms: int, now_ms: int) -> str:
    return "now" if at_ms <= now_ms else distance(at_ms, now_ms)


def show(session: Session, name: str, *, as_json: bool) -> None:
    """One limit, with those that hold its places."""
    with session.client() as client:
        view = client.limits.get(name)
    if not (view.places or view.rates or view.circuits or view.turns or view.counters):
        raise LimitNotFound(f"Nothing is kept for the limit {name!r}.", hint="`delayq limit list` names all.")
    if as_json:
        session.out.json(shapes.limit(view))
        return
    now_ms = local_ms()
    session.out.table(_HEADS, _rows(view, now_ms), numbers=("waiting",))
    for word, number in view.counters.items():
        session.out.line(f"{word} {number:,}")
    rows = [
        (
            place.key,
            holder.id,
            holder.queue,
            distance(holder.since_ms, now_ms),
            holder.entry,
            "" if holder.live else "gone",
        )
        for place in view.places
        for holder in place.holders
    ]
    if rows:
        session.out.line("")
        session.out.table(("key", "holder", "queue", "since", "entry", "state"), rows)


def free(session: Session, target: Target, reason: str, *, as_json: bool) -> None:
    """Free it, and say what was."""
    with session.client() as client:
        freed = client.limits.free(target.name, target.key, holder=target.holder, reason=reason)
    if as_json:
        session.out.json(shapes.freed(target.name, target.key, freed))
        return
    for holder in freed.holders:
        session.out.line(holder)
    done = [count(len(freed.holders), "place")] if freed.holders else []
    done += ["the rate"] if freed.rate else []
    done += ["the circuit"] if freed.circuit else []
    session.out.note(f"Freed: {', '.join(done)}. It is on record: delayq audit.")


def audit(session: Session, limit: int, *, as_json: bool) -> None:
    """The last deeds, the newest first."""
    with session.client() as client:
        entries = client.audit_log.last(limit)
    if as_json:
        for entry in entries:
            session.out.json(deed(entry))
        return
    rows = [
        (
            format_instant(entry.at_ms),
            entry.who,
            entry.door,
            entry.what,
            entry.target,
            entry.detail,
            entry.reason,
            f"{entry.outcome}: {entry.refusal}" if entry.refusal else str(entry.outcome),
        )
        for entry in entries
    ]
    session.out.table(("when", "who", "door", "what", "on", "detail", "reason", "outcome"), rows)
