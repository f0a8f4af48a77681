"""Where jobs go: a Redis, which remembers what it was sent, or any other backend."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final
from zlib import crc32

from msgspec.structs import replace

from delayq.core import envelope as envelopes
from delayq.core.envelope import ABSENT
from delayq.core.errors import BackendError, BadEnvelope, ConfigError, DelayqError, InvalidInput
from delayq.core.names import check_queue
from delayq.core.options import Options
from delayq.core.spec import Prepared, prepare_raw
from delayq.core.states import Answer, OnConflict
from delayq.core.views import JobRef
from delayq.drivers.broker import Findable, Fits, Item, Waiting
from delayq.drivers.capabilities import refuse_job
from delayq.drivers.migrating.taking import Taking
from delayq.drivers.redis_connection import RedisConnection
from delayq.drivers.serving.connection import BrokerConnection, item_of
from delayq.redis.calls import produce

ABOUT_THE_JOB: Final = (InvalidInput, BadEnvelope)
"""What a backend raises for a job that it will never take."""
TOGETHER: Final = 250
"""Jobs in one push, where that is all or nothing."""
_Placed = tuple[int, Prepared]
_Made = tuple[int, Item]


class RedisTarget:
    """A connection to Redis. Each script call has a token that is kept for a week."""

    remembers = True

    def __init__(self, connection: RedisConnection, options: Options) -> None:
        self._connection = connection
        self._options = options
        self._tokens: dict[str, list[str]] = {}

    def ready(self, queue: str) -> None:
        """Ask it something about that queue."""
        self._connection.client.stats(check_queue(queue))

    def refuses(self, queue: str, job: Waiting) -> str:
        """By its envelope."""
        try:
            self._prepared(queue, job)
        except DelayqError as error:
            return error.message
        return ""

    def take(self, queue: str, lot: str, jobs: Sequence[Waiting], taking: Taking, *, again: bool) -> None:
        """A script call for every 250 jobs or megabyte."""
        tokens = self._tokens[lot] = []
        for part in self._parts(queue, jobs, taking):
            tokens.append(_token(lot, jobs, part))
            spread = self._connection.client.verbs.layouts.of(part[0][1].queue).listed > 1  # a call for each shard
            with taking.sending([place for place, _ in part], partly=spread):
                refs = self._connection.carry([job for _, job in part], OnConflict.KEEP, tokens[-1])
            for (place, job), ref in zip(part, refs, strict=True):
                if ref.outcome is Answer.CREATED or (again and self._is_there(jobs[place], job)):
                    taking.there(place)
                else:
                    taking.refuse(place, _taken(ref, job.id))

    def settled(self, queue: str, lot: str, jobs: Sequence[Waiting]) -> None:
        """Its tokens may go."""
        for token in self._tokens.pop(lot, ()):
            self._connection.carried(queue, token)

    def close(self) -> None:
        """Close the connections."""
        self._connection.close()

    def _parts(self, queue: str, jobs: Sequence[Waiting], taking: Taking) -> Iterator[list[_Placed]]:
        """The same jobs in the same order whenever the lot is sent: what cannot be read is left out every time."""
        ready: list[_Placed] = []
        for place, job in enumerate(jobs):
            try:
                ready.append((place, self._prepared(queue, job)))
            except DelayqError as error:
                taking.refuse(place, error.message)
        start = 0
        for chunk in produce.chunks(job for _, job in ready):
            yield ready[start : start + len(chunk)]
            start += len(chunk)

    def _prepared(self, queue: str, job: Waiting) -> Prepared:
        return replace(prepare_raw(job.envelope, self._options, queue), when=str(job.due_ms))

    def _is_there(self, job: Waiting, ready: Prepared) -> bool:
        """Whether the job of that id is this one, from a send whose lot was dropped in part."""
        found = self._connection.client.get(ready.id, queue=ready.queue)
        return found is not None and _same(found.raw, job.envelope)


class BrokerTarget:
    """Any other backend. One that keeps ids knows a job again as long as it is there."""

    remembers = False

    def __init__(self, connection: BrokerConnection) -> None:
        self._connection = connection
        can = connection.capabilities
        self._keeps_ids = can.ids
        # Where nobody could ask what arrived, few are sent at a time: those are all that an error leaves open.
        self._at_once = TOGETHER if can.ids else can.prefetch

    def ready(self, queue: str) -> None:
        """What a worker looks at before it begins, a producer finds too."""
        self._connection.broker.ready([check_queue(queue)])

    def refuses(self, queue: str, job: Waiting) -> str:
        """By what it can do, and by what it says of such a job."""
        broker = self._connection.broker
        try:
            item = self._item(queue, job)
            if isinstance(broker, Fits):
                broker.fit([item])
        except (BackendError, ConfigError):
            raise  # it is about the place, not about this job
        except DelayqError as error:
            return error.message
        return ""

    def take(self, queue: str, lot: str, jobs: Sequence[Waiting], taking: Taking, *, again: bool) -> None:
        """Push what it can hold; one that it refuses is found by pushing halves."""
        items: list[_Made] = []
        for place, job in enumerate(jobs):
            try:
                items.append((place, self._item(queue, job)))
            except DelayqError as error:
                taking.refuse(place, error.message)
        for start in range(0, len(items), self._at_once):
            self._push(items[start : start + self._at_once], taking, again=again)

    def settled(self, queue: str, lot: str, jobs: Sequence[Waiting]) -> None:
        """Nothing is remembered of it."""

    def close(self) -> None:
        """Close the connections."""
        self._connection.close()

    def _push(self, some: Sequence[_Made], taking: Taking, *, again: bool) -> None:
        conflict = OnConflict.ERROR if self._keeps_ids else OnConflict.KEEP
        try:
            with taking.sending([place for place, _ in some]):
                refs = self._connection.broker.push([item for _, item in some], conflict)
        except ABOUT_THE_JOB as error:
            if len(some) == 1:
                taking.refuse(some[0][0], error.message)
                return
            half = len(some) // 2
            self._push(some[:half], taking, again=again)
            self._push(some[half:], taking, again=again)
            return
        for (place, item), ref in zip(some, refs, strict=True):
            if ref.outcome is Answer.CREATED or (again and self._is_there(item)):
                taking.there(place)
            else:
                taking.refuse(place, _taken(ref, item.id))

    def _item(self, queue: str, job: Waiting) -> Item:
        ready = replace(prepare_raw(job.envelope, self._connection.options, queue), when=str(job.due_ms))
        item = item_of(ready, self._connection.broker.now_ms())
        refuse_job(ready.envelope, item.delay_ms, self._connection.capabilities, self._connection.name)
        return item

    def _is_there(self, item: Item) -> bool:
        """Whether the job of that id is this one, from an earlier send."""
        broker = self._connection.broker
        if not isinstance(broker, Findable):
            return False
        found = broker.find(item.queue, item.id)
        return found is not None and _same(found.envelope, item.envelope)


def _taken(ref: JobRef, job_id: str) -> str:
    """Why it was not made."""
    return "its id is taken there" if ref.id == job_id else f"its unique key is taken there, by the job {ref.id}"


def _same(one: bytes, other: bytes) -> bool:
    """Whether two envelopes are of one job, however a backend wrote them down. No two seals are alike."""
    left, right = envelopes.decode(one), envelopes.decode(other)
    sealed = left.encrypted is not ABSENT or right.encrypted is not ABSENT
    alike = (left.name, left.created_ms) == (right.name, right.created_ms)
    return alike and (sealed or bytes(left.data) == bytes(right.data))


def _token(lot: str, jobs: Sequence[Waiting], part: Sequence[_Placed]) -> str:
    """Of these jobs of the lot, however many of the others have gone since."""
    return f"migrate:{lot}.{crc32(' '.join(jobs[place].entry for place, _ in part).encode()):08x}"
