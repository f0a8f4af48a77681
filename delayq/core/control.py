"""What holds for all workers of a prefix at once, as values. Pure.

    pause all      nobody fetches anything, until resumed or for a time
    maintenance    the same, but for workers that were started with --force
    restart        workers that were started before leave after their job
    order          an order for one worker

An *until* is epoch ms by the server's clock; 0 means until it is ended, None that it is not so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

CLOCK_SLACK_MS: Final = 5_000


class WorkerOrder(StrEnum):
    """What an operator tells one worker.

    QUIET: end the running jobs and take no new ones, until told otherwise. STOP and RESTART: end the running jobs
    within the grace and leave with exit code 0; a restart counts on a process manager that starts the worker again.
    RESUME: work as usual, which is what a worker does without an order.
    """

    RESUME = "resume"
    QUIET = "quiet"
    RESTART = "restart"
    STOP = "stop"


def in_force(until_ms: int | None, now_ms: int) -> bool:
    """Whether something that ends then holds now."""
    return until_ms is not None and (until_ms == 0 or until_ms > now_ms)


@dataclass(frozen=True, slots=True)
class Control:
    """The switches, as read at `now_ms`. For people: `reason` of the maintenance, `paused_reason` of the pause."""

    now_ms: int = 0
    paused_until_ms: int | None = None
    maintenance_until_ms: int | None = None
    maintenance_since_ms: int | None = None
    restart_ms: int | None = None
    reason: str = ""
    paused_queues: frozenset[str] = frozenset()
    """Those of the queues that were asked about, as far as they were read, that are paused by name."""
    paused_reason: str = ""

    @property
    def paused(self) -> bool:
        """Whether everything is paused."""
        return in_force(self.paused_until_ms, self.now_ms)

    @property
    def maintenance(self) -> bool:
        """Whether there is maintenance."""
        return in_force(self.maintenance_until_ms, self.now_ms)

    @property
    def why(self) -> str:
        """The reason that was given for what `held_by` names, or ''."""
        return self.paused_reason if self.paused else self.reason

    def held_by(self, *, force: bool = False) -> str:
        """What keeps workers from fetching: 'paused', 'maintenance' (not with `force`), or ''."""
        if self.paused:
            return "paused"
        return "maintenance" if self.maintenance and not force else ""


Heed: TypeAlias = Callable[[Control], bool]
"""Told the switches each time a worker has read them; whether it may fetch now."""


News: TypeAlias = Callable[[], int]
"""A number that becomes another one when the switches may have changed."""


def obey(control: Control) -> bool:
    """The usual heed."""
    return not control.held_by()


@dataclass(frozen=True, slots=True)
class Attention:
    """How a consumer minds the switches: `heed` decides; `news` tells when to look at them (None: it has to know)."""

    heed: Heed = obey
    news: News | None = None


OBEY: Final = Attention()


@dataclass(frozen=True, slots=True)
class RestartWatch:
    """Whether a call to restart concerns one worker. Made with what it saw first, at `seen_ms` by the server's clock.

    `started_ms` is when its process started, by the same clock. A call between the two concerns it: its code was
    loaded before. One that lies ahead of the clock does not: the clock went back, and it would leave for ever. A little
    ahead means nothing: `seen_ms` is what a worker takes for the server's clock, which may be late by a slow answer.
    """

    first_ms: int | None
    seen_ms: int
    started_ms: int

    def concerns(self, restart_ms: int | None) -> bool:
        """Whether the worker has to leave, now that it sees this call (None = there was never one)."""
        if restart_ms is None:
            return False
        if restart_ms != self.first_ms:
            return True
        return self.started_ms < restart_ms <= self.seen_ms + CLOCK_SLACK_MS
