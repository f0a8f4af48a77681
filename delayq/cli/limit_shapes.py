"""What `--json` prints of limits, locks and deeds, as `shapes` does for the rest."""

from __future__ import annotations

from typing import Any

from delayq.core.limit_views import CircuitView, Freed, LimitView, PlacesView, RateView
from delayq.core.lock_views import LockView
from delayq.core.when import format_instant

Shape = dict[str, Any]


def limit(view: LimitView) -> Shape:
    """One limit. `waiting_turns` counts jobs that wait for their turn at any of its rates."""
    return {
        "limit": view.name,
        "places": [_place(place) for place in view.places],
        "rates": [_rate(rate) for rate in view.rates],
        "circuits": [_circuit(circuit) for circuit in view.circuits],
        "waiting_turns": view.turns,
        **view.counters,
    }


def _place(place: PlacesView) -> Shape:
    holders = [
        {
            "queue": holder.queue,
            "id": holder.id,
            "entry": holder.entry,
            "live": holder.live,
            **_time("since", holder.since_ms),
        }
        for holder in place.holders
    ]
    return {
        "key": place.key,
        "limit": place.limit,
        "held": place.held,
        "waiting": place.waiting,
        "holders": holders,
    }


def _rate(rate: RateView) -> Shape:
    return {
        "key": rate.key,
        "kind": rate.kind,
        "most": rate.most,
        "per_ms": rate.per_ms,
        "used": rate.used,
        **_time("free", rate.free_ms),
        **_time("line", rate.line_ms or None),
    }


def _circuit(circuit: CircuitView) -> Shape:
    return {
        "key": circuit.key,
        "state": circuit.state,
        "failures": circuit.failures,
        **_time("until", circuit.until_ms or None),
        "prober": circuit.prober or None,
    }


def freed(name: str, key: str, what: Freed) -> Shape:
    """What was freed by hand."""
    holders = [dict(zip(("queue", "id"), holder.partition(" ")[::2], strict=True)) for holder in what.holders]
    return {"limit": name, "key": key, "holders": holders, "rate": what.rate, "circuit": what.circuit}


def lock(view: LockView) -> Shape:
    """A lock of a unique key. `state` is absent when its owner is gone."""
    return {
        "lock": view.lock,
        "queue": view.queue,
        "until": view.until,
        "owner": view.owner,
        "name": view.name or None,
        "state": view.state,
        **_time("since", view.since_ms),
        **_time("ends", view.until_ms),
    }


def _time(name: str, ms: int | None) -> Shape:
    return {f"{name}_ms": ms, name: None if ms is None else format_instant(ms)}
