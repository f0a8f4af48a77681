"""The model's other half: delivery, settling, and taking back what vanished workers held."""

from __future__ import annotations

from typing import NamedTuple

from tests.support.model_state import ANYTHING, Job, ModelState, Place, Row, after, own_name
from tests.support.model_view import order

GARBAGE_ID = "x-"
LONGEST_WAIT_US = 2**53 - 1


class Taken(NamedTuple):
    """What a reclaim does; `left`: expired entries that are still there."""

    back: list[str]
    failed: list[str]
    hold: int
    left: int


class Delivery(NamedTuple):
    """What a holder knows: the id it read and the entry it got it in."""

    id: str
    entry: str


class DeliveryModel(ModelState):
    """What mover, workers and janitor do."""

    __slots__ = ()

    def promotable(self, limit: int) -> list[Job]:
        """What a promote moves now, in order."""
        if self.paused:
            return []
        room = max(0, min(limit, self.high_water - self.held))
        return [job for job in self.waiting if job.due <= self.now][:room]

    def promote(self, limit: int) -> list[str]:
        moved = self.promotable(limit)
        for job in moved:
            self.to_stream(job)
        return [job.id for job in moved]

    def waits(self) -> set[int]:
        """What promote may say of the wait, after it moved all it could."""
        if self.paused:
            return {-3}
        head = next(iter(self.waiting), None)
        full = {-2} if self.held >= self.high_water else set()
        if head is None:
            return {-1} | full
        if head.due > self.now:
            return {min(LONGEST_WAIT_US, (head.due - self.now) * 1000)} | full
        return {0} | full

    def read(self, consumer: str, count: int) -> list[str]:
        """The entries that consumer gets."""
        got = self.undelivered[:count]
        for entry in got:
            self.pending[entry] = Row(consumer)
            self.last = entry
        return got

    def replayed(self, consumer: str) -> list[str]:
        """The consumer's own pending entries, in order."""
        mine = [entry for entry, row in self.pending.items() if row.consumer == consumer]
        return [entry for entry in self.stream if entry in mine]

    def renew(self, consumer: str, held: list[Delivery]) -> tuple[set[str], set[str]]:
        """The ids lost, and the ids asked to stop. Whoever renews is on record from then on, and in the group."""
        if own_name(consumer) and consumer not in self.recorded:
            self.consumers.add(consumer)
            self.recorded.add(consumer)
        mine = [item for item in held if self.owns(item.id, item.entry)]
        for item in mine:
            self.pending[item.entry] = Row(consumer)
        lost = {item.id for item in held if item not in mine}
        return lost, {item.id for item in mine if self.jobs[item.id].asked}

    def count(self, consumer: str) -> int:
        return sum(row.consumer == consumer for row in self.pending.values())

    def ack(self, item: Delivery, retention: int, result: bytes) -> bool:
        if not self.owns(item.id, item.entry):
            return False
        job = self.jobs[item.id]
        if retention <= 0:
            self.drop(item.id)
            return True
        self.leave_stream(job)
        self.unlock(job)
        job.place, job.at, job.result = Place.COMPLETED, self.now + retention, result or b"null"
        job.recoveries, job.failure = 0, b""
        return True

    def release(self, item: Delivery, delay: int, raw: bytes, failure: bytes) -> bool:
        if not self.owns(item.id, item.entry):
            return False
        job = self.jobs[item.id]
        self.to_schedule(job, self.now + delay)
        job.raw, job.failure = raw or job.raw, after(job.failure, failure) if failure else job.failure
        return True

    def fail(self, item: Delivery, raw: bytes, failure: bytes) -> bool:
        if not self.owns(item.id, item.entry):
            return False
        job = self.jobs[item.id]
        job.raw = raw or job.raw
        self._give_up(job, after(job.failure, failure))
        return True

    def _give_up(self, job: Job, failure: bytes) -> None:
        self.leave_stream(job)
        self.unlock(job)
        job.place, job.at, job.failure = Place.FAILED, self.now, failure

    def hand_back(self, item: Delivery) -> bool:
        if not self.owns(item.id, item.entry):
            return False
        job = self.jobs[item.id]
        self.deliver_again(job)
        return True

    def reclaim(self, limit: int) -> Taken:
        """A tick too far from the last one, in either direction, holds everything for one lease."""
        if self.tick is None or self.now < self.tick or self.now - self.tick > self.lease / 2:
            self.hold = self.now + self.lease
        self.tick = self.now
        if self.now < self.hold:
            return Taken([], [], self.hold - self.now, 0)
        expired = [entry for entry in sorted(self.pending, key=order) if self.pending[entry].idle >= self.lease]
        back: list[str] = []
        failed: list[str] = []
        for entry in expired[:limit]:
            job_id = self.stream.get(entry, "")
            if not job_id:
                del self.pending[entry]
                continue
            job = self.jobs[job_id]
            job.recoveries += 1
            if job.recoveries > self.max_recoveries:
                self._give_up(job, ANYTHING)
                failed.append(job_id)
            else:
                self.deliver_again(job)
                back.append(job_id)
        return Taken(back, failed, 0, max(0, len(expired) - limit))

    def record_consumers(self) -> None:
        """A page of `unsettled` notes who is there, and who of delayq's own is there no more."""
        own = {name for name in self.consumers if own_name(name)}
        self.vanished |= self.recorded - own
        self.recorded = own

    def verdicts(self, *, everything: bool) -> dict[str, str]:
        """What `unsettled` says of each delivered entry that is not pending (`everything`: and of all garbage)."""
        found = {}
        for entry, job_id in self.stream.items():
            free = self.is_delivered(entry) and entry not in self.pending
            if not free and (job_id or not everything):
                continue
            trusted = self.foreign and not self.vanished
            found[entry] = ("acked" if trusted else "again") if job_id else "garbage"
        return found

    def bury(self, entry: str, raw: bytes, failure: bytes, *, known: bool, placed: bool) -> str:
        """Garbage becomes a failed job of its own; a copy of a `known` job becomes its place, if it has no other.

        Not when it was delivered and nobody holds it any more: given back, it would look like work that is done.
        """
        if self.stream.get(entry, "owned"):
            return "left"
        if known and not placed and (entry in self.pending or not self.is_delivered(entry)):
            return "adopted"
        self.stream.pop(entry)
        self.pending.pop(entry, None)
        if known:
            return "dropped"
        job_id = GARBAGE_ID + entry
        self.jobs[job_id] = Job(job_id, raw, Place.FAILED, at=self.now, failure=failure)
        return "buried"

    def prune(self, keep_failed: int) -> tuple[list[str], list[str]]:
        """Ids of completed and of failed jobs that were kept long enough."""
        completed = [job.id for job in self.jobs.values() if job.place is Place.COMPLETED and job.at <= self.now]
        old = self.now - keep_failed
        failed = [job.id for job in self.jobs.values() if job.place is Place.FAILED and job.at <= old]
        for job_id in (*completed, *failed):
            self.drop(job_id)
        return completed, failed

    def advance(self, ms: int) -> None:
        """Time passes. A pending row without its entry stays young: the test has no harmless way to age it."""
        self.now += ms
        self.latest = max(self.latest, self.now)
        for entry, row in self.pending.items():
            if entry in self.stream:
                row.idle += ms
