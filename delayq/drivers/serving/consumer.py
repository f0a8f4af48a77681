"""One worker's way to the deliveries of any broker."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from delayq.core import envelope as envelopes
from delayq.core.control import Heed, obey
from delayq.core.errors import AWAY, BadEnvelope, DelayqError, WorkerVanished
from delayq.core.limiting import Limits
from delayq.core.order import Order, strict
from delayq.core.outcome import GiveUp
from delayq.core.progress import Told
from delayq.drivers.base import Claim, Delivery, Fetched, Renewal, Settlement
from delayq.drivers.broker import Broker, Switched
from delayq.drivers.serving.holder import Holder
from delayq.drivers.serving.settling import End, Settling

LOOK_S = 0.5
SHUN_S = 1.0
WAIT_S = 1.0


@dataclass(frozen=True, slots=True)
class Means:
    """What a consumer works with. `most` deliveries are read at once; `max_recoveries` vanished workers fail a job.

    `holder` keeps leases that only this process can keep.
    """

    broker: Broker
    settling: Settling
    limits: Limits
    most: int
    max_recoveries: int
    holder: Holder | None = None


class BrokerConsumer:
    """A `Consumer` under `name`."""

    replays = False

    def __init__(
        self, means: Means, name: str, queues: Sequence[str], heed: Heed = obey, order: Order = strict
    ) -> None:
        self.name = name
        self.queues = tuple(queues)
        self.limits = means.limits
        self._broker = means.broker
        self._settling = means.settling
        self._most = means.most
        self._max_recoveries = means.max_recoveries
        self._holder = means.holder
        self._heed = heed
        self._order = order
        self._look_at = float("-inf")
        self._allowed = True
        self._paused: frozenset[str] = frozenset()
        self._shunned: dict[str, float] = {}

    # -- reading -----------------------------------------------------------------------------------------------------

    def fetch(self, settlements: Sequence[Settlement], count: int) -> Fetched:
        """Settle, then reserve up to `count`, queue after queue, without waiting."""
        done = self.settle(settlements)
        errors, found = list(done.errors), list[Delivery]()
        wanted = min(count, self._most)
        for queue in self._order(self._open_queues()) if wanted else ():
            try:
                found += self._broker.reserve(queue, wanted - len(found))
            except AWAY as error:
                if not settlements and not found:
                    raise
                errors.append(error)  # what was settled must be known, and so must what came from the queues before
                break
            except DelayqError as error:
                self._shunned[queue] = time.monotonic() + SHUN_S
                errors.append(error)
            if len(found) >= wanted:
                break
        return Fetched(done.settled, self._taken(found, errors), errors)

    def wait(self, seconds: float) -> Fetched:
        """Wait for the first delivery, at most `seconds` and at most one.

        What came at the end of a wait counts as asked for at its start, and may start only early in its lease.
        """
        seconds = min(seconds, WAIT_S, self.lease_s() / 3)
        queues = self._order(self._open_queues())
        if not queues:
            time.sleep(seconds)
            return Fetched()
        errors: list[DelayqError] = []
        found = self._broker.wait(queues, seconds)
        return Fetched((), self._taken(found, errors), errors)

    def replay(self) -> Fetched:
        """Nothing: a broker does not know consumers. A reservation whose reply was lost ends with its lease."""
        return Fetched()

    def _taken(self, found: Sequence[Delivery], errors: list[DelayqError]) -> list[Delivery]:
        """What may start. A job whose workers vanish again and again fails here."""
        if self._holder is not None and found:
            self._holder.add(map(claim_of, found))
        worn = [item for item in found if item.recoveries > self._max_recoveries]
        if not worn:
            return list(found)
        done = self._end([End(claim_of(item), item.raw, _vanished(item)) for item in worn])
        errors += done.errors
        return [item for item in found if item.recoveries <= self._max_recoveries]

    def _open_queues(self) -> Sequence[str]:
        now = time.monotonic()
        if isinstance(self._broker, Switched) and now >= self._look_at:
            self._look_at = now + LOOK_S
            control = self._broker.control(self.queues)
            self._allowed, self._paused = self._heed(control), control.paused_queues
        if not self._allowed:
            return []
        return [queue for queue in self.queues if queue not in self._paused and self._shunned.get(queue, 0.0) <= now]

    # -- settling ----------------------------------------------------------------------------------------------------

    def settle(self, settlements: Sequence[Settlement]) -> Fetched:
        """Settle without reading."""
        ends = [End(claim_of(one.delivery), one.delivery.raw, one.outcome, one.resent) for one in settlements]
        return self._end(ends)

    def _end(self, ends: Sequence[End]) -> Fetched:
        done = self._settling.settle(ends)
        if self._holder is not None:
            self._holder.drop(end.claim for end, ours in zip(ends, done.answers, strict=True) if ours is not None)
        return Fetched(done.answers, (), done.errors)

    def hand_back(self, deliveries: Sequence[Delivery]) -> None:
        """Give back what was not started."""
        claims = [claim_of(item) for item in deliveries]
        if claims:
            self._broker.give_back(claims, vanished=False)
        if self._holder is not None:
            self._holder.drop(claims)

    # -- staying -----------------------------------------------------------------------------------------------------

    def renew(self, deliveries: Sequence[Delivery]) -> Renewal:
        """Start the leases anew."""
        return renewal([claim_of(item) for item in deliveries], self._broker.renew)

    def tell(self, told: Sequence[tuple[Delivery, Told]]) -> None:
        """Nothing is kept of it: no broker keeps progress, and the capability table says so."""

    def lease_s(self) -> float:
        """The shortest lease of the queues served."""
        return min(self._broker.lease_s(queue) for queue in self.queues)

    def announce(self, about: Mapping[str, Any], ttl_s: float) -> None:
        """Nobody is told: a broker keeps no list of workers."""

    def now_ms(self) -> int:
        """The backend's time."""
        return self._broker.now_ms()

    def close(self) -> None:
        """Stop renewing, and close the connections."""
        if self._holder is not None:
            self._holder.close()
        self._settling.close()
        self._broker.close()


def claim_of(delivery: Delivery) -> Claim:
    """What looks after a delivery."""
    return Claim(delivery.queue, delivery.id, delivery.entry)


def renewal(claims: Sequence[Claim], renew: Callable[[Sequence[Claim]], list[bool]]) -> Renewal:
    """What workers hear of a renewal."""
    answers = renew(claims) if claims else []
    lost = frozenset((claim.queue, claim.id) for claim, ours in zip(claims, answers, strict=True) if not ours)
    return Renewal(lost, frozenset(), surplus=False)


def _vanished(delivery: Delivery) -> GiveUp:
    error = WorkerVanished(
        f"Its worker vanished {delivery.recoveries} times while running it; most likely the job kills its process."
    )
    try:
        envelope = envelopes.decode(delivery.raw)
    except BadEnvelope:
        return GiveUp(0, 0, error)
    return GiveUp(envelope.attempts, envelope.exceptions, error)
