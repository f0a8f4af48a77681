"""Sending again, where that is safe, inside a budget the caller can rely on.

redis-py would resend by itself, ten times, also after a lost reply, and for up to a minute. Here it never
does; this loop is the only one. It sends again

* always, when nothing went out (no connection, no handshake) or Redis would not look at it (LOADING, READONLY);
* after a lost reply only if the call is `safe`: sent twice it does the same as sent once.

The budget is a promise to producers: one answer or one error within `total_ms`, also when Redis hangs and
answers nothing. A try waits at most `try_ms` for the connection and as long for the answer; a server that stops
between the two costs one of them, not both. When less time than that is left, a try waits `last_ms` at most, over
connections of its own. No try starts when less than `last_ms` is left.
Pauses double from 10 ms to 500 ms, each shortened by chance, so that clients do not return in step.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from delayq.redis.faults import AGAIN, REDIS_ERRORS, Fault, Kind, fault_of, is_pool_empty
from delayq.redis.translate import translate

T = TypeVar("T")

SPARE_MS = 100
"""For the pauses between tries, and for what a try needs beside its waits."""
HASTY_MS = 300
"""A connection may be dead and its node well. So a hasty call tries once more, unless a try took longer than this."""


@dataclass(frozen=True, slots=True)
class Budget:
    """How long a call may take, all tries and pauses together."""

    total_ms: int = 5_000
    try_ms: int = 2_000
    first_pause_ms: int = 10
    longest_pause_ms: int = 500

    @property
    def last_ms(self) -> int:
        """How long the last try may wait: what two whole tries and their pauses leave. `try_ms` if that is nothing."""
        left_ms = self.total_ms - 2 * self.try_ms - SPARE_MS
        return min(left_ms, self.try_ms) if left_ms >= SPARE_MS else self.try_ms


@dataclass(frozen=True, slots=True)
class Resends:
    """How one call may be repeated.

    `where` names the server in errors. `safe`: the call may be sent again after a lost reply. `reads`: it
    changes nothing, so it is safe and a lost reply is no unknown outcome. `hasty`: a node of a cluster that is away is
    not waited for. `sentinels`: they choose the primary, so one without replicas may have been replaced.
    """

    where: str
    safe: bool
    reads: bool = False
    budget: Budget = Budget()
    hasty: bool = False
    sentinels: bool = False


@dataclass(frozen=True, slots=True)
class Pause:
    """Before the next try: wait, and drop idle connections when the server behind them is the wrong one.

    `brief`: that try may wait for `Budget.last_ms` only.
    """

    seconds: float
    drop: bool
    brief: bool


class _Story:
    """The tries of one call so far."""

    def __init__(self, resends: Resends, started: float, outside: BaseException | None) -> None:
        self._resends = resends
        self._started = started
        self._outside = outside
        self._pause_ms = float(resends.budget.first_pause_ms)
        self._reply_lost = False
        self._resent = False

    def pause_after(self, error: BaseException) -> Pause:
        """What to do before the next try. Raises what the caller gets when there is none."""
        fault = fault_of(error, outside=self._outside)
        self._reply_lost = self._reply_lost or fault.reply_lost
        again = fault.kind in AGAIN and (not fault.reply_lost or self._resends.safe or self._resends.reads)
        pause_ms = self._pause_ms * random.uniform(0.5, 1.0)
        spent_ms = (time.monotonic() - self._started) * 1000
        budget = self._resends.budget
        if not again or spent_ms + pause_ms > self._last_try_ms(fault, error):
            # One lost reply among the tries leaves the outcome open, whatever the last try met.
            fault = replace(fault, reply_lost=self._reply_lost)
            raise translate(error, where=self._resends.where, fault=fault, reads=self._resends.reads) from error
        self._resent = True
        self._pause_ms = min(self._pause_ms * 2, budget.longest_pause_ms)
        replaced = fault.kind is Kind.RESOLVE or (self._resends.sentinels and fault.code == "NOREPLICAS")
        return Pause(pause_ms / 1000, drop=replaced, brief=spent_ms + pause_ms > budget.total_ms - budget.try_ms)

    def _last_try_ms(self, fault: Fault, error: BaseException) -> float:
        """How long after the beginning another try may start.

        A pool that is empty bounds the connections of this process, so there is no try over others.
        """
        budget = self._resends.budget
        if self._resends.hasty and fault.apart:
            return HASTY_MS if fault.reply_lost and not self._resent else 0
        return budget.total_ms - (budget.try_ms if is_pool_empty(error) else budget.last_ms)


def resend(call: Callable[[bool], T], resends: Resends, *, drop: Callable[[], None]) -> T:
    """Answer of `call`, which sends one command or one pipeline, sent as often as `resends` allows.

    `call` is given whether it may wait for `Budget.last_ms` only. `drop` makes the next try open new connections.
    Raises `BackendUnavailable`, `BackendFull`, `OutcomeUnknown`, `ConfigError`, `BackendError`.
    """
    outside = sys.exception()
    started = time.monotonic()
    story: _Story | None = None
    brief = False
    while True:
        try:
            return call(brief)
        except REDIS_ERRORS as error:
            story = story or _Story(resends, started, outside)
            pause = story.pause_after(error)
        if pause.drop:
            drop()
        brief = pause.brief
        time.sleep(pause.seconds)


async def aresend(call: Callable[[bool], Awaitable[T]], resends: Resends, *, drop: Callable[[], Awaitable[None]]) -> T:
    """As `resend`, for asyncio."""
    outside = sys.exception()
    started = time.monotonic()
    story: _Story | None = None
    brief = False
    while True:
        try:
            return await call(brief)
        except REDIS_ERRORS as error:
            story = story or _Story(resends, started, outside)
            pause = story.pause_after(error)
        if pause.drop:
            await drop()
        brief = pause.brief
        await asyncio.sleep(pause.seconds)
