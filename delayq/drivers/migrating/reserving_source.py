"""The source of a migration on a backend that sets nothing aside: its jobs are reserved, sent, and then ended here.

A run that dies gives its reservations back by itself, and the next one reserves them again: what had been sent by then
is sent twice. Jobs whose time has not come are shown to nobody, so they stay until it has.
"""

from __future__ import annotations

from collections.abc import Sequence

from delayq.drivers.base import Claim, Delivery
from delayq.drivers.broker import Broker, Forget, Waiting


class ReservingSource:
    """A lot is what one read brought; it lives in this process alone."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._lots: dict[str, dict[str, Delivery]] = {}

    def queues(self) -> list[str]:
        """Those that hold something."""
        return self._broker.queues()

    def waiting(self, queue: str) -> int:
        """What is ready."""
        return self._broker.depth(queue).ready

    def lots(self, queue: str) -> list[str]:
        """None: reservations of an earlier run have ended with it, or will."""
        return []

    def set_aside(self, queue: str, lot: str, count: int) -> int:
        """Reserve some."""
        found = self._broker.reserve(queue, count)
        self._lots[lot] = {one.entry: one for one in found}
        return len(found)

    def lot(self, queue: str, lot: str) -> list[Waiting]:
        """What was reserved."""
        return [Waiting(one.id, queue, one.entry, one.raw, one.due_ms) for one in self._lots.get(lot, {}).values()]

    def drop(self, queue: str, lot: str, jobs: Sequence[Waiting]) -> Sequence[str]:
        """End them; those whose reservation was over before are delivered here once more."""
        ended = self._broker.settle([Forget(Claim(queue, job.id, job.entry), job.envelope) for job in jobs])
        for job in jobs:
            self._lots[lot].pop(job.entry, None)
        return [job.id for job, ours in zip(jobs, ended, strict=True) if not ours]

    def put_back(self, queue: str, lot: str) -> int:
        """Give the others back, as if nobody had reserved them."""
        rest = self._lots.pop(lot, {})
        self._broker.give_back([Claim(queue, one.id, one.entry) for one in rest.values()], vanished=False)
        return len(rest)

    def staying(self, queue: str) -> str:
        """What waits for its time."""
        delayed = self._broker.depth(queue).delayed
        return f"{delayed} wait for their time, and cannot be taken before" if delayed else ""

    def close(self) -> None:
        """Close the broker."""
        self._broker.close()
