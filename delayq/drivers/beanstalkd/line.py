"""What one connection to beanstalkd has reserved, and how it reserves, touches and gives back.

A reservation is named `<job>.<reserves>`: the server's number of the job, and how often it had been reserved by then.
The server counts, so no later reservation of it has the same name; and who wonders whether one still stands can ask.

    recoveries = reserves - 1 - releases - buries

Every reservation but this one ended with a delete, a release or a bury, or with nobody's word: its TTR ran out, or its
holder's connection broke. The last two are what is to be counted; a job that is handed back is released, and so is not.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import greenstalk

from delayq.core.errors import BackendUnavailable, BadEnvelope, InvalidName
from delayq.drivers.base import Claim, Delivery
from delayq.drivers.beanstalkd.session import Job, Session
from delayq.drivers.beanstalkd.tubes import MOST, Tubes

log = logging.getLogger("delayq.beanstalkd")


class Hold(NamedTuple):
    """One reservation: the job, which connection has it, and what it was put with."""

    job: Job
    serial: int
    priority: int
    ttr_s: int


class Line:
    """Belongs to one thread at a time."""

    def __init__(self, tubes: Tubes, session: Session) -> None:
        self.tubes = tubes
        self.session = session
        self.held: dict[str, Hold] = {}
        self.ended: dict[str, bool] = {}

    def take(self, queue: str, count: int) -> list[Delivery]:
        """Reserve up to `count` jobs of a queue, without waiting.

        A server that is lost on the way keeps nothing: with the connection go the reservations.
        """
        self.session.watch(frozenset({self.tubes.tube(queue)}))
        found: list[Delivery] = []
        while len(found) < count and (job := self._next(0)) is not None:
            if (delivery := self._delivery(job)) is not None:
                found.append(delivery)
        return found

    def wait(self, queues: Sequence[str], seconds: int) -> list[Delivery]:
        """The first job of any of the queues; wait for it on the server, in whole seconds."""
        self.session.watch(frozenset(map(self.tubes.tube, queues)))
        job = self._next(seconds)
        delivery = self._delivery(job) if job is not None else None
        return [] if delivery is None else [delivery]

    def renew(self, claims: Sequence[Claim]) -> list[bool]:
        """Touch what is held here. What another connection holds nobody but that one can keep; ask whether it does."""
        return [self._touch(claim) if self.mine(claim) else self._stands(claim) for claim in claims]

    def give_back(self, claims: Iterable[Claim]) -> None:
        """Release at once, as urgent as they were. What is not held here went back with its connection."""
        for claim in claims:
            hold = self.held.pop(claim.entry, None)
            if hold is not None and hold.serial == self.session.serial:
                self.release(hold, 0)

    def hang_up(self) -> None:
        """Close the connection; what it holds the server makes available."""
        self.held.clear()
        self.session.drop()

    def mine(self, claim: Claim) -> bool:
        """Whether this connection has it, as far as is known."""
        hold = self.held.get(claim.entry)
        return hold is not None and hold.serial == self.session.serial and self.session.connected

    def release(self, hold: Hold, delay_s: int) -> bool:
        """Give one back; False when it was not held any more."""
        try:
            self.session.ask(lambda client: client.release(hold.job, hold.priority, delay_s))
        except (greenstalk.NotFoundError, greenstalk.BuriedError):
            return False
        return True

    def stats(self, job_id: int) -> greenstalk.StatsJob | None:
        """What the server knows of a job; None when it is gone."""
        try:
            return self.session.ask(lambda client: client.stats_job(job_id))
        except greenstalk.NotFoundError:
            return None

    def bury(self, job: Job, priority: int) -> None:
        """Set it aside, where nobody reserves it."""
        try:
            self.session.ask(lambda client: client.bury(job, priority))
        except greenstalk.NotFoundError:
            log.info("job %d of beanstalkd was gone before it could be buried", job.id)

    def _next(self, seconds: int) -> Job | None:
        try:
            return self.session.ask(lambda client: client.reserve(seconds), wait_s=seconds)
        except (greenstalk.TimedOutError, greenstalk.DeadlineSoonError):
            return None

    def _delivery(self, job: Job) -> Delivery | None:
        """As workers know it. None for what is none: it is buried, and told of."""
        stats = self.stats(job.id)
        if stats is None:  # deleted by hand in between
            return None
        queue, now_ms = self.tubes.queue(stats["tube"]), time.time_ns() // 1_000_000
        if queue is None:  # only what is watched is reserved, and that was made from queues
            raise BackendUnavailable(f"beanstalkd gave a job of the tube {stats['tube']!r}, which was not asked for.")
        try:
            read = self.tubes.bodies.read(job.body, queue, now_ms)
        except (BadEnvelope, InvalidName) as error:
            log.warning("tube %s: job %d is buried, because it is no job of delayq: %s", stats["tube"], job.id, error)
            self.bury(job, stats["pri"])
            return None
        entry = f"{job.id}.{stats['reserves']}"
        self.held[entry] = Hold(job, self.session.serial, stats["pri"], stats["ttr"])
        recoveries = max(0, stats["reserves"] - 1 - stats["releases"] - stats["buries"])
        return Delivery(queue, read.id, entry, read.envelope, now_ms, recoveries, unreadable=read.unreadable)

    def _touch(self, claim: Claim) -> bool:
        try:
            self.session.ask(lambda client: client.touch(self.held[claim.entry].job))
        except greenstalk.NotFoundError:
            self.held.pop(claim.entry, None)
            return False
        return True

    def _stands(self, claim: Claim) -> bool:
        """Whether the reservation is what it was: reserved, and no more often than then."""
        job_id, reserves = named(claim)
        stats = self.stats(job_id)
        return stats is not None and stats["state"] == "reserved" and stats["reserves"] == reserves


def named(claim: Claim) -> tuple[int, int]:
    """The job and the reservation that an entry names; of what is none of ours, those that never are."""
    job_id, _, reserves = claim.entry.partition(".")
    return (int(job_id), int(reserves)) if job_id.isdecimal() and reserves.isdecimal() else (MOST, 0)
