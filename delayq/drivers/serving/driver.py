"""The workers' side of any broker."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from delayq.core.control import Heed, News, obey
from delayq.core.options import Options
from delayq.core.order import Order, strict
from delayq.drivers.base import Promotion, Relayed, Tidied
from delayq.drivers.broker import Asked, Broker, Moves
from delayq.drivers.capabilities import Keeper
from delayq.drivers.serving.acts import Acts
from delayq.drivers.serving.backend import Backend, refuse_lost_failures
from delayq.drivers.serving.consumer import BrokerConsumer, Means
from delayq.drivers.serving.holder import Holder
from delayq.drivers.serving.limits import NoLimits
from delayq.drivers.serving.settling import Settling
from delayq.drivers.serving.steward import BrokerSteward

NOTHING_MOVES = Promotion(0, 0, None)


class NoWakeUps:
    """`WakeUps` of a backend that hints at nothing: a mover looks when its time has come."""

    listening = False

    def __init__(self) -> None:
        self._closed = threading.Event()

    def wait(self, seconds: float) -> frozenset[str] | None:
        """Sleep, at most until it is closed."""
        self._closed.wait(max(0.0, seconds))
        return frozenset()

    def close(self) -> None:
        """End the sleep."""
        self._closed.set()


class BrokerDriver:
    """A `Driver` over one broker of this process."""

    def __init__(self, connection: str, backend: Backend, broker: Broker, options: Options) -> None:
        self._connection = connection
        self._backend = backend
        self._broker = broker
        self._options = options
        self._settling = Settling(broker, Acts(connection, backend.capabilities, broker.dump), backend.failed)

    def queues(self) -> list[str]:
        """All queues that hold something."""
        return self._broker.queues()

    def register(self, queues: Sequence[str]) -> None:
        """Nothing to do: a queue is known as long as it holds something."""

    def relist(self) -> bool:
        """Nothing to do, for the same reason."""
        return True

    def promote(self, queue: str) -> Promotion:
        """Move one batch of due jobs, where the backend needs that."""
        return self._broker.promote(queue) if isinstance(self._broker, Moves) else NOTHING_MOVES

    def relay(self, queue: str) -> Relayed:
        """Nothing: what follows a job is pushed when it is settled."""
        return Relayed()

    def reclaim(self, queue: str) -> Tidied:
        """Take back what nobody renewed, where the backend does not do that by itself."""
        back = 0
        while isinstance(self._broker, Moves) and (moved := self._broker.reclaim(queue)):
            back += moved
        return Tidied(reclaimed=back)

    def tidy(self, queue: str) -> Tidied:
        """Nothing: what a broker holds is its own to heal."""
        return Tidied()

    def lease_s(self, queue: str) -> float:
        """The queue's lease in seconds."""
        return self._broker.lease_s(queue)

    def wake_ups(self) -> NoWakeUps:
        """A listener that hears nothing."""
        return NoWakeUps()

    def consumer(
        self, name: str, queues: Sequence[str], heed: Heed = obey, order: Order = strict, news: News | None = None
    ) -> BrokerConsumer:
        """A worker's way to the deliveries of these queues; it looks at switches itself, whatever `news` says.

        Raises `ConfigError` where something is missing.
        """
        self._broker.ready(queues)
        can = self._backend.capabilities
        lease_s = min(self._broker.lease_s(queue) for queue in queues)
        means = Means(
            self._broker,
            self._settling,
            self._broker.limits(self._connection) if isinstance(self._broker, Asked) else NoLimits(self._connection),
            can.prefetch,
            self._options.max_recoveries,
            Holder(self._broker.renew, lease_s) if can.keeper is Keeper.HOLDER else None,
        )
        return BrokerConsumer(means, name, queues, heed, order)

    def steward(self, queues: Sequence[str]) -> BrokerSteward:
        """Looks after the deliveries of consumers that live in other processes."""
        look = partial(refuse_lost_failures, self._connection, self._backend)
        return BrokerSteward(self._broker, self._settling, queues, self._backend.capabilities.keeper, look)

    def close(self) -> None:
        """Close the connections made here."""
        self._settling.close()
        self._broker.close()


@dataclass(frozen=True, slots=True)
class BrokerDriverFactory:
    """Makes drivers, each with a broker of its own: one for every process of a worker."""

    connection: str
    backend: Backend
    options: Options

    def __call__(self, *, answer_ms: int | None = None) -> BrokerDriver:
        """`answer_ms`: wait no longer than that for a connection or an answer."""
        return BrokerDriver(self.connection, self.backend, self.backend.make(answer_ms=answer_ms), self.options)
