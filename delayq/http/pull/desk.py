"""Reservations: handed out by a queue's line, renewed and settled for whoever has the token."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, NamedTuple

from delayq.app import fallback_policy
from delayq.core import envelope as envelopes
from delayq.core.envelope import Envelope
from delayq.core.errors import BadEnvelope
from delayq.core.interrupts import JobCancelled
from delayq.core.outcome import Ack, GiveUp, Outcome, Policy, Release, before_start, decide, policy_of, told_as
from delayq.core.shards import queue_of
from delayq.drivers.base import Claim, Delivery, Settlement
from delayq.drivers.redis_streams import RedisStreams
from delayq.http.problems import Problem, Refused
from delayq.http.pull.line import Line
from delayq.jobs.results import encoded
from delayq.redis.aio import AsyncClient
from delayq.settings import Settings
from delayq.worker.names import consumer_name

MOST_WAITING: Final = 1_000
UNKNOWN_LOOK_S: Final = 0.5


class Reserved(NamedTuple):
    """A delivery and its envelope; the policy says how it is tried."""

    delivery: Delivery
    envelope: Envelope
    policy: Policy


class Settled(NamedTuple):
    """How a reservation ended: done, released, snoozed or failed."""

    claim: Claim
    outcome: str


class Desk:
    """All lines of this server. `stopping` lets everybody who waits go."""

    def __init__(self, driver: RedisStreams, client: AsyncClient, settings: Settings, stopping: asyncio.Event) -> None:
        self._driver = driver
        self._client = client
        self._fallback = fallback_policy(settings)
        self._stopping = stopping
        self._name = consumer_name("http")
        self._lines: dict[str, Line] = {}

    async def reserve(self, queue: str, count: int, wait_s: float) -> list[Reserved]:
        """Up to `count` jobs that may start, after at most `wait_s`. What may not is settled, as by a worker."""
        if sum(line.length for line in self._lines.values()) >= MOST_WAITING:
            raise Refused(
                Problem(
                    503,
                    "too-many-waiting",
                    f"{MOST_WAITING:,} callers wait here already.",
                    "Try again later.",
                    headers={"Retry-After": "2"},
                )
            )
        line, left_s = await self._line_of(queue, wait_s)
        if line is None:
            return []
        found = await line.take(count, left_s)
        ready: list[Reserved] = []
        for delivery in found:
            judged = self._judged(delivery)
            if isinstance(judged, Reserved):
                ready.append(judged)
            else:
                consumer = await line.opened()
                await asyncio.to_thread(consumer.settle, [Settlement(delivery, judged)])
        return ready

    async def hand_back(self, queue: str, reserved: list[Reserved]) -> None:
        """Give back what its caller never got to see; it costs no attempt."""
        await self._lines[queue].hand_back([one.delivery for one in reserved])

    async def lease_ms(self, queue: str) -> int:
        """How long a reservation of that queue holds."""
        return int(await asyncio.to_thread(self._driver.lease_s, queue) * 1000)

    async def renew(self, claim: Claim) -> bool:
        """Start a lease anew; whether its job is asked to stop. Raises `Refused` for one that is over."""
        queue = queue_of(claim.queue)
        line, _ = await self._line_of(queue, 0.0)
        if line is None:
            raise await self._over(claim)
        await line.opened()
        steward = self._driver.steward([queue])
        said = await asyncio.to_thread(steward.renew, line.name, [claim])
        if said.errors:
            raise said.errors[0]
        if (claim.queue, claim.id) in said.lost:
            raise await self._over(claim)
        return (claim.queue, claim.id) in said.asked_to_stop

    async def settle(self, claim: Claim, ends: Callable[[Envelope, Policy, int], Outcome]) -> Settled:
        """Settle a reservation by what `ends` makes of it. Raises `Refused` for one that is over."""
        steward = self._driver.steward([queue_of(claim.queue)])
        raw = await asyncio.to_thread(steward.envelope, claim)
        if not raw:
            raise await self._over(claim)
        envelope = envelopes.decode(raw)
        outcome = ends(envelope, policy_of(envelope, self._fallback), await asyncio.to_thread(steward.now_ms))
        [mine] = await asyncio.to_thread(steward.settle, [(claim, outcome)])
        if not mine:
            raise await self._over(claim)
        return Settled(claim, told_as(outcome)[0])

    def done(self, result: Any, envelope: Envelope, policy: Policy, now_ms: int) -> Outcome:
        """For `settle`: the job is done, with that result."""
        outcome = decide(envelope, policy, None, now_ms, random.random)
        if result is not None and isinstance(outcome, Ack) and outcome.retention_ms:
            return replace(outcome, result=encoded(envelope, result, self._client.options.keyring))
        return outcome

    async def close(self) -> None:
        """Leave the groups where nothing is held."""
        for line in self._lines.values():
            await line.close()
        await asyncio.to_thread(self._driver.close)

    async def _line_of(self, queue: str, wait_s: float) -> tuple[Line | None, float]:
        """The line of a queue, and what is left of the time. A queue that is not known yet is waited for, not made."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + wait_s
        while queue not in self._lines:
            if queue in await self._client.queues():
                self._lines.setdefault(queue, Line(self._driver, queue, self._name, self._stopping))
                break
            left_s = until_s - loop.time()
            if left_s <= 0 or self._stopping.is_set():
                return None, 0.0
            await asyncio.sleep(min(UNKNOWN_LOOK_S, left_s))
        return self._lines[queue], max(0.0, until_s - loop.time())

    def _judged(self, delivery: Delivery) -> Reserved | Outcome:
        """Whether a delivery may start, or what becomes of it."""
        try:
            if delivery.unreadable:
                raise BadEnvelope(delivery.unreadable)
            envelope = envelopes.decode(delivery.raw)
        except BadEnvelope as error:
            return GiveUp(0, 0, error)
        policy = policy_of(envelope, self._fallback)
        if delivery.stop:
            return decide(envelope, policy, JobCancelled(), 0, random.random)
        refused = before_start(envelope, policy, delivery.due_ms)
        return refused or Reserved(delivery, envelope, policy)

    async def _over(self, claim: Claim) -> Refused:
        """The refusal of a token whose job is gone (410), or in other hands by now (409)."""
        queue = queue_of(claim.queue)
        info = await self._client.get(claim.id, queue=queue)
        if info is None:
            said = f"The job {claim.id!r} in queue {queue!r} is over, and so is this reservation of it."
            return Refused(Problem(410, "reservation-over", said, "Throw the token away."))
        said = f"This reservation of the job {claim.id!r} in queue {queue!r} is over; the job is {info.state}."
        hint = "Its lease ended before it was renewed, or it was settled. Throw the token away, and stop the work."
        return Refused(Problem(409, "lease-lost", said, hint, more={"state": info.state}))


def failed(error: BaseException, delay_ms: int | None) -> Callable[[Envelope, Policy, int], Outcome]:
    """For `settle`: an attempt that failed, or was put off; `delay_ms` goes before the job's own backoff."""

    def ends(envelope: Envelope, policy: Policy, now_ms: int) -> Outcome:
        outcome = decide(envelope, policy, error, now_ms, random.random)
        if isinstance(outcome, Release) and delay_ms is not None:
            return replace(outcome, delay_ms=delay_ms)
        return outcome

    return ends
