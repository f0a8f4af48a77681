"""A supervisor's side of any broker: it keeps and clears up what its children hold, by their claims."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from delayq.core.control import WorkerOrder
from delayq.core.outcome import GiveUp, Outcome
from delayq.drivers.base import Claim, Measures, Renewal
from delayq.drivers.broker import Broker
from delayq.drivers.capabilities import Keeper
from delayq.drivers.serving.consumer import renewal
from delayq.drivers.serving.settling import End, Settling


class BrokerSteward:
    """A `Steward`. Where nobody but the child can renew, or nobody at all, `renew` says that all is well.

    `look` raises when something else is missing that a worker needs.
    """

    def __init__(
        self, broker: Broker, settling: Settling, queues: Sequence[str], keeper: Keeper, look: Callable[[], None]
    ) -> None:
        self.queues = tuple(queues)
        self._broker = broker
        self._settling = settling
        self._keeper = keeper
        self._look = look
        self._looked = False
        self._unsure: set[Claim] = set()

    def renew(self, consumer: str, claims: Sequence[Claim]) -> Renewal:
        """Start the leases anew, where this process can."""
        return renewal(claims if self._keeper is Keeper.STEWARD else (), self._broker.renew)

    def listen(self) -> None:
        """There is nothing to hear: running jobs cannot be asked to stop here."""

    def heard(self) -> frozenset[tuple[str, str]]:
        """Nothing."""
        return frozenset()

    def changes(self) -> int:
        """None: its consumers look at switches themselves."""
        return 0

    def order(self, worker: str) -> WorkerOrder:
        """RESUME: orders go through Redis."""
        return WorkerOrder.RESUME

    def asked_to_stop(self, claim: Claim) -> bool:
        """Never."""
        return False

    def settle(self, ended: Sequence[tuple[Claim, Outcome]]) -> list[bool]:
        """Settle what a dead process had finished. A failure needs its envelope; without one it is delivered again."""
        again = [claim in self._unsure for claim, _ in ended]
        self._unsure.update(claim for claim, _ in ended)
        ends = [
            End(claim, self._broker.envelope(claim), outcome, resent)
            for (claim, outcome), resent in zip(ended, again, strict=True)
        ]
        blind = [end.claim for end in ends if not end.raw and isinstance(end.outcome, GiveUp)]
        if blind:
            self._broker.give_back(blind, vanished=True)
        done = self._settling.settle([end for end in ends if end.claim not in blind])
        if done.errors:
            raise done.errors[0]
        self._unsure.difference_update(claim for claim, _ in ended)
        answers = iter(done.answers)
        return [end.claim not in blind and bool(next(answers)) for end in ends]

    def hand_back(self, claims: Sequence[Claim]) -> None:
        """Make available again, uncounted where the backend can do so."""
        if claims:
            self._broker.give_back(claims, vanished=False)

    def recover(self, claims: Sequence[Claim]) -> int:
        """Make available again, counted. Whether that was once too often is found when it is read again."""
        if claims:
            self._broker.give_back(claims, vanished=True)
        return 0

    def envelope(self, claim: Claim) -> bytes:
        """The envelope; b'' when it is gone, or cannot be read from here."""
        return self._broker.envelope(claim)

    def pending(self, consumer: str) -> list[Claim]:
        """Nothing: a broker does not know consumers."""
        return []

    def retire(self, consumer: str) -> None:
        """It is on no list."""

    def announce(self, consumer: str, about: Mapping[str, Any], ttl_s: float) -> None:
        """Nobody is told: a broker keeps no list of workers."""

    def tally(self, measured: Mapping[str, Measures]) -> frozenset[str]:
        """Dropped: a broker keeps no counts."""
        return frozenset()

    def leases_ms(self) -> Mapping[str, int]:
        """Return nothing: the lease belongs to the connection."""
        return {}

    def lease_s(self) -> float:
        """The shortest lease of the queues served. Asked for the first time, it looks that all they need is there.

        So a worker that is refused (no such queue, no keys, no place for failed jobs) hears it before it makes
        children. Raises `ConfigError`.
        """
        if not self._looked:
            self._broker.ready(self.queues)
            self._look()
            self._looked = True
        return min(self._broker.lease_s(queue) for queue in self.queues)

    def now_ms(self) -> int:
        """The backend's time."""
        return self._broker.now_ms()
