"""The source of a migration on a backend that sets nothing aside: its jobs are reserved, sent, and then ended here.

A run that dies gives its reservations back by itself, and the next one reserves them again: what had been sent by then
is known where the target has the job still, and sent twice elsewhere. Jobs whose time has not come are shown to nobody,
so they stay until it has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from delayq.drivers.base import Claim, Delivery
from delayq.drivers.broker import Broker, Forget, Waiting
from delayq.drivers.migrating.ends import Stays


class ReservingSource:
    """A lot is what one read brought; it lives in this process alone.

    What cannot go is held until the run is over, because it would be read again at once.
    """

    comes_back = True

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._lots: dict[str, dict[str, Delivery]] = {}
        self._held: dict[str, dict[str, Claim]] = {}

    def queues(self) -> list[str]:
        """Those that hold something."""
        return self._broker.queues()

    def waiting(self, queue: str) -> int:
        """What is ready."""
        return self._broker.depth(queue).ready

    def lots(self, queue: str) -> list[str]:
        """None: reservations of an earlier run have ended with it, or will."""
        return []

    def set_aside(self, queue: str, lot: str, count: int, stays: Stays) -> int:
        """Reserve some. When only those come back that were held before, their leases are over, and so is the walk."""
        held = self._held.setdefault(queue, {})
        while found := self._broker.reserve(queue, count):
            staying = {one.entry for one in found if stays(_waiting(one))}
            known = {claim.id for claim in held.values()}
            held.update((one.entry, Claim(queue, one.id, one.entry)) for one in found if one.entry in staying)
            self._lots[lot] = {one.entry: one for one in found if one.entry not in staying}
            if self._lots[lot] or all(one.id in known for one in found):
                return len(self._lots[lot])
        return 0

    def lot(self, queue: str, lot: str) -> list[Waiting]:
        """What was reserved."""
        return [_waiting(one) for one in self._lots.get(lot, {}).values()]

    def drop(self, queue: str, lot: str, jobs: Sequence[Waiting]) -> Sequence[str]:
        """End them; those whose reservation was over before are delivered here once more."""
        ended = self._broker.settle([Forget(Claim(queue, job.id, job.entry), job.envelope) for job in jobs])
        for job in jobs:
            self._lots[lot].pop(job.entry, None)
        return [job.id for job, ours in zip(jobs, ended, strict=True) if not ours]

    def put_back(self, queue: str, lot: str, jobs: Sequence[Waiting]) -> Mapping[str, str]:
        """They are given back when the run is over."""
        for job in jobs:
            self._lots[lot].pop(job.entry, None)
        self._held.setdefault(queue, {}).update((job.entry, Claim(queue, job.id, job.entry)) for job in jobs)
        return {}

    def let_go(self, queue: str) -> None:
        """Give back, as if nobody had reserved them, what is held, and what an error left of a lot."""
        held = self._held.pop(queue, {})
        left = [one for lot in self._lots.values() for one in lot.values() if one.queue == queue]
        self._lots = {}
        claims = [*held.values(), *(Claim(queue, one.id, one.entry) for one in left)]
        if claims:
            self._broker.give_back(claims, vanished=False)

    def staying(self, queue: str) -> str:
        """What waits for its time."""
        delayed = self._broker.depth(queue).delayed
        return f"{delayed} wait for their time, and cannot be taken before" if delayed else ""

    def close(self) -> None:
        """Close the broker."""
        self._broker.close()


def _waiting(one: Delivery) -> Waiting:
    return Waiting(one.id, one.queue, one.entry, one.raw, one.due_ms, one.unreadable)
