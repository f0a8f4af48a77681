"""beanstalkd as a `Broker`: tubes are queues, a reservation's TTR is its lease, touching it renews it.

A worker's reservations all belong to one connection, which the desk talks on; everything else borrows a connection. So
a process that has reserved nothing (a producer, a supervisor) has no thread of ours.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import greenstalk

from delayq.core.errors import BackendError, BadEnvelope, InvalidName, OutcomeUnknown
from delayq.core.states import OnConflict
from delayq.core.views import JobRef
from delayq.drivers.base import Claim, Delivery
from delayq.drivers.beanstalkd import looking, settling
from delayq.drivers.beanstalkd.desk import Desk
from delayq.drivers.beanstalkd.line import Line, named
from delayq.drivers.beanstalkd.pool import Pool
from delayq.drivers.beanstalkd.session import ANSWER_S, Session
from delayq.drivers.beanstalkd.tubes import Tubes, whole_seconds
from delayq.drivers.broker import Act, Depth, Item, Waiting, WaitingPage

T = TypeVar("T")

POLL_S = 0.02
WAIT_S = 1


class BeanstalkdBroker:
    """One process's way to a beanstalkd. `answer_ms`: how long to wait for a connection or an answer."""

    def __init__(self, tubes: Tubes, answer_ms: int | None = None) -> None:
        self._tubes = tubes
        self._answer_s = ANSWER_S if answer_ms is None else answer_ms / 1000
        self._pool = Pool(self._line)
        self._desk = Desk(self._line())

    # -- producing ---------------------------------------------------------------------------------------------------

    def push(self, items: Sequence[Item], on_conflict: OnConflict) -> list[JobRef]:
        """Put them one after the other, once all are known to fit."""
        with self._pool.line() as line:
            settling.fit(line, items)
            for done, item in enumerate(items):
                try:
                    settling.put(line, [item])
                except BackendError as error:
                    if done and not isinstance(error, OutcomeUnknown):
                        raise OutcomeUnknown(f"{done} of {len(items)} jobs were sent; then: {error}") from error
                    raise
        return [_in_seconds(item).created() for item in items]

    def fit(self, items: Sequence[Item]) -> None:
        """Raises `InvalidInput` for what the server would not take."""
        with self._pool.line() as line:
            settling.fit(line, items)

    # -- working -----------------------------------------------------------------------------------------------------

    def ready(self, queues: Sequence[str]) -> None:
        """Look that the server is there; tubes come and go by themselves."""
        with self._pool.line() as line:
            line.session.limit()

    def reserve(self, queue: str, count: int) -> list[Delivery]:
        """Reserve up to `count` jobs, without waiting."""
        return self._desk.ask(lambda line: line.take(queue, count), _give_back)

    def wait(self, queues: Sequence[str], seconds: float) -> list[Delivery]:
        """Wait for one job of any queue.

        On the server, while nothing is held: a connection that waits can neither touch nor settle. Else look, and sleep
        a little.
        """
        if seconds >= WAIT_S and not self._desk.ask(lambda line: bool(line.held)):
            return self._desk.ask(lambda line: line.wait(queues, WAIT_S), _give_back)
        found = self._desk.ask(lambda line: line.wait(queues, 0), _give_back)
        if not found:
            time.sleep(max(0.0, min(seconds, POLL_S)))
        return found

    def settle(self, acts: Sequence[Act]) -> list[bool]:
        """End reservations, in order."""
        return self._ask(lambda line: settling.settle(line, acts))

    def give_back(self, claims: Sequence[Claim], *, vanished: bool) -> None:
        """Release what is held here. What a dead process held the server has made available by itself, and counted."""
        self._ask(lambda line: line.give_back(claims))

    def renew(self, claims: Sequence[Claim]) -> list[bool]:
        """Touch what is held here; of what is held elsewhere, say whether it still is."""
        return self._ask(lambda line: line.renew(claims))

    def envelope(self, claim: Claim) -> bytes:
        """Return the envelope of a job in any state; b'' when the job is gone."""
        with self._pool.line() as line:
            try:
                body = line.session.ask(lambda client: client.peek(named(claim)[0])).body
                return self._tubes.bodies.read(body, claim.queue).envelope
            except (greenstalk.NotFoundError, BadEnvelope, InvalidName):
                return b""

    def dump(self, envelope: bytes) -> bytes:
        """The body."""
        return self._tubes.bodies.write(envelope)

    def load(self, payload: bytes) -> bytes:
        """The envelope of a body."""
        return self._tubes.bodies.load(payload)

    def lease_s(self, queue: str) -> float:
        """The TTR of the jobs put over this connection."""
        return float(self._tubes.ttr_s)

    def now_ms(self) -> int:
        """This machine's time: beanstalkd has no clock to ask for."""
        return time.time_ns() // 1_000_000

    # -- looking and removing ----------------------------------------------------------------------------------------

    def queues(self) -> list[str]:
        """Tubes of ours that hold something."""
        with self._pool.line() as line:
            return looking.queues(line)

    def depth(self, queue: str) -> Depth:
        """What the server counts."""
        with self._pool.line() as line:
            return looking.depth(line, queue)

    def page(self, queue: str, *, cursor: str, count: int) -> WaitingPage:
        """Nothing: beanstalkd shows one job, the next one, and no list."""
        return WaitingPage((), "")

    def remove(self, jobs: Sequence[Waiting]) -> list[bool]:
        """Delete jobs by their numbers."""
        with self._pool.line() as line:
            return [looking.delete(line, int(job.entry)) for job in jobs]

    def clear(self, queue: str) -> int:
        """Delete what is ready and what is delayed; not what is buried."""
        with self._pool.line() as line:
            return looking.clear(line, queue)

    def kick(self, queue: str, count: int) -> int:
        """Make up to `count` buried jobs ready; how many."""
        with self._pool.line() as line:
            return looking.kick(line, queue, count)

    def buried(self, queue: str) -> int:
        """How much is buried: what is no job of delayq, or has grown too large."""
        with self._pool.line() as line:
            return looking.buried(line, queue)

    def all_buried(self) -> dict[str, int]:
        """The same of each queue where anything is."""
        with self._pool.line() as line:
            return looking.all_buried(line)

    def close(self) -> None:
        """Close all connections. What is held goes back with them, and counts as vanished: hand it back before."""
        self._desk.close()
        self._pool.close()

    def _line(self) -> Line:
        return Line(self._tubes, Session(self._tubes.place, self._answer_s))

    def _ask(self, do: Callable[[Line], T]) -> T:
        """Where the reservations are, in a process that has any."""
        if self._desk.open:
            return self._desk.ask(do)
        with self._pool.line() as line:
            return do(line)


def _give_back(line: Line, found: list[Delivery]) -> None:
    line.give_back([Claim(item.queue, item.id, item.entry) for item in found])


def _in_seconds(item: Item) -> Item:
    """As the server counts it."""
    rounded_ms = whole_seconds(item.delay_ms) * 1000
    return item._replace(delay_ms=rounded_ms, due_ms=item.due_ms + rounded_ms - item.delay_ms)
