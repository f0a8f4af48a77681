"""The jobs a batch sends as it goes along: which they are, what they are called, and what their headers tell.

Each is sent once, or once in every round that a retry begins. Then each time is a job of its own: the first may wait,
or be kept, for long.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from delayq.core import follow
from delayq.core.followups import Link, Plan, Send
from delayq.core.own_ids import BATCH_HEADER
from delayq.redis.calls.follow import Standing

CALLBACKS: Final = ("progress", "catch", "finally", "then")


class Bound(NamedTuple):
    """A job to send and the token that makes it one job."""

    token: str
    job: Send


def before(plan: Plan, now_ms: int) -> list[Bound]:
    """What is sent with the first members."""
    return _bound(f"{plan.id}.before", plan.callbacks.before, now_ms)


def called(name: str, plan: Plan, standing: Standing, now_ms: int) -> list[Bound]:
    """What is sent because `name` is due of a batch that stands so."""
    links: list[Link] = getattr(plan.callbacks, "finally_" if name == "finally" else name)
    rounds = {"catch": standing.failed_round, "then": 0}.get(name, standing.round)
    ending = f".{standing.round}.{standing.ended}" if name == "progress" else follow.round_of(rounds)
    return _bound(f"{plan.id}.{name}{ending}", links, now_ms, numbers(plan, standing), ending)


def numbers(plan: Plan, standing: Standing) -> dict[str, str]:
    """Headers of what a batch sends: how it stands."""
    told = {"done": standing.done, "failed": standing.failed, "skipped": standing.skipped}
    told["total"] = standing.pending + standing.ended
    return {BATCH_HEADER: plan.id, **{f"delayq-batch-{name}": str(value) for name, value in told.items()}}


def _bound(
    token: str, links: Iterable[Link], now_ms: int, headers: dict[str, str] | None = None, ending: str = ""
) -> list[Bound]:
    """Links as jobs; `ending` makes another job of one that is sent more than once."""
    bound = []
    for n, link in enumerate(links):
        item = follow.launch(link, now_ms, headers, ending)
        assert isinstance(item, Send)  # a callback is a job: the builder takes nothing else
        bound.append(Bound(f"{token}.{n}", item))
    return bound
