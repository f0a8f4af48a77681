"""Where jobs go: a Redis, which remembers what it was sent, or any other backend."""

from __future__ import annotations

from collections.abc import Sequence

from delayq.core import envelope as envelopes
from delayq.core.errors import DelayqError
from delayq.core.options import Options
from delayq.core.spec import Prepared, prepare_raw
from delayq.core.states import Answer, OnConflict
from delayq.drivers.broker import Findable, Item, Waiting
from delayq.drivers.capabilities import refuse_job
from delayq.drivers.redis_connection import RedisConnection
from delayq.drivers.serving.connection import BrokerConnection
from delayq.redis.calls import produce


class RedisTarget:
    """A connection to Redis. Each script call has a token that is kept for a week."""

    remembers = True

    def __init__(self, connection: RedisConnection, options: Options) -> None:
        self._connection = connection
        self._options = options

    def take(self, queue: str, lot: str, jobs: Sequence[Waiting]) -> list[str]:
        """A script call for every 250 jobs or megabyte, always cut alike."""
        ready, answers = self._ready(queue, jobs)
        for n, chunk in enumerate(produce.chunks(ready)):
            refs = self._connection.carry(chunk, OnConflict.KEEP, _token(lot, n))
            for job, ref in zip(chunk, refs, strict=True):
                if ref.outcome is not Answer.CREATED:
                    owner = "" if ref.id == job.id else f", by the job {ref.id}"
                    answers[job.id] = f"its {'unique key' if owner else 'id'} is taken there{owner}"
        return [answers.get(job.id, "") for job in jobs]

    def settled(self, queue: str, lot: str, jobs: Sequence[Waiting]) -> None:
        """Its tokens may go."""
        ready, _ = self._ready(queue, jobs)
        for n, _ in enumerate(produce.chunks(ready)):
            self._connection.carried(queue, _token(lot, n))

    def close(self) -> None:
        """Close the connections."""
        self._connection.close()

    def _ready(self, queue: str, jobs: Sequence[Waiting]) -> tuple[list[Prepared], dict[str, str]]:
        """The same jobs in the same order whenever the lot is sent: what cannot be read is left out every time."""
        ready: list[Prepared] = []
        refused: dict[str, str] = {}
        for job in jobs:
            try:
                made = prepare_raw(job.envelope, self._options, queue)
            except DelayqError as error:
                refused[job.id] = error.message
            else:
                ready.append(made._replace(when=str(job.due_ms)))
        return ready, refused


class BrokerTarget:
    """Any other backend. One that keeps ids knows a job again as long as it is there."""

    remembers = False

    def __init__(self, connection: BrokerConnection) -> None:
        self._connection = connection

    def take(self, queue: str, lot: str, jobs: Sequence[Waiting]) -> list[str]:
        """One push of what it can hold."""
        broker = self._connection.broker
        now_ms = broker.now_ms()
        answers: dict[str, str] = {}
        items: list[Item] = []
        for job in jobs:
            try:
                items.append(self._item(job, queue, now_ms))
            except DelayqError as error:
                answers[job.id] = error.message
        refs = broker.push(items, OnConflict.KEEP) if items else []
        for item, ref in zip(items, refs, strict=True):
            if ref.outcome is not Answer.CREATED and not self._is_there(item):
                answers[item.id] = "its id is taken there"
        return [answers.get(job.id, "") for job in jobs]

    def settled(self, queue: str, lot: str, jobs: Sequence[Waiting]) -> None:
        """Nothing is remembered of it."""

    def close(self) -> None:
        """Close the connections."""
        self._connection.close()

    def _item(self, job: Waiting, queue: str, now_ms: int) -> Item:
        delay_ms = max(0, job.due_ms - now_ms)
        name = envelopes.decode(job.envelope).name
        refuse_job(job.envelope, delay_ms, self._connection.capabilities, self._connection.name)
        envelope = job.envelope if job.queue == queue else envelopes.rewrite(job.envelope, queue=queue)
        return Item(job.id, name, queue, envelope, delay_ms, job.due_ms)

    def _is_there(self, item: Item) -> bool:
        """Whether the job of that id is this one, from an earlier send."""
        broker = self._connection.broker
        if not isinstance(broker, Findable):
            return False
        found = broker.find(item.queue, item.id)
        return found is not None and _same(found.envelope, item.envelope)


def _same(one: bytes, other: bytes) -> bool:
    """Whether two envelopes are of one job, however a backend wrote them down."""
    left, right = envelopes.decode(one), envelopes.decode(other)
    return (left.name, bytes(left.data), left.created_ms) == (right.name, bytes(right.data), right.created_ms)


def _token(lot: str, chunk: int) -> str:
    return f"migrate:{lot}:{chunk}"
