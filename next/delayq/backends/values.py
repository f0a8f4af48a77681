"""The values that a worker and its backend exchange.

States: a job is scheduled (not due yet), ready (a consumer may fetch it), reserved (delivered to a consumer), failed or
completed. A job that is acknowledged without a retention is deleted.

Deliveries: a delivery is one job that was handed to one consumer. A consumer settles each delivery, which means to
report the outcome, or hands it back without a start. A delivery that is neither settled nor handed back is pending.

Ids: a job id is unique in its queue. Each new delivery of a job has a new entry id. A queue never uses an entry id
again, and its entry ids grow, because handlers get them as fencing tokens (`JobContext.token`).

Fencing: a delivery never moves to another consumer, and its entry id identifies it. If the job has been delivered
again, the older delivery is no longer valid. Settling an older delivery changes nothing, and is answered FENCED. Other
methods ignore an older delivery.

Recoveries: if the worker of a job vanishes, because it dies or does not renew the lease, the next delivery of the job
counts as a recovery. A job keeps its number of recoveries when it is released or handed back. If the number would
exceed `Options.max_recoveries`, the job is not delivered again: it fails, and its failure has the type WorkerVanished.

Stop requests: a cancel cannot delete a reserved job. It marks the job, and the job stays reserved until its worker
settles it. If the job is delivered again before that, the new delivery has `is_stopping`.
"""

from enum import IntEnum
from typing import ClassVar, Final

import msgspec

from delayq.core.errors import BackendError

MAX_ENTRY_BYTES: Final = 41
"""Maximum length of an entry id, in bytes.

A slot is the entry of a job in the memory that a child shares with its supervisor. A longer id would not fit into a
slot, and the slot could not be matched with its delivery. So the child raises ValueError for a longer id.
"""

EntryKey = tuple[str, str]
"""A queue and an entry id. Both are needed, because entries of two queues may have the same id."""


class DeliveryRef(msgspec.Struct, frozen=True, gc=False):
    """The queue, job id and entry id of a delivery: what is needed to renew, hand back or acknowledge it."""

    queue: str
    id: str
    entry: str

    @property
    def key(self) -> EntryKey:
        """The queue and entry id, which no other delivery has."""
        return self.queue, self.entry


class Delivery(msgspec.Struct, frozen=True, gc=False):
    """A job that was handed to a consumer.

    `id`, `envelope`: job id and envelope (the job as JSON); both are empty if the entry is not a job of delayq.
    `recoveries`: how many workers of this job have vanished. `due`: due time in epoch ms, as digits; for a retry, the
    due time of the retry. A recovery or a hand-back does not change it. `is_stopping`: a cancel asked the job to stop,
    so the worker settles the job as Stopped without a start.
    """

    queue: str
    id: str
    entry: str
    envelope: bytes
    recoveries: int = 0
    due: bytes = b"0"
    is_stopping: bool = False

    @property
    def due_ms(self) -> int:
        """The due time in epoch ms, or 0 if it is unreadable."""
        return int(self.due) if self.due.isdigit() else 0

    @property
    def key(self) -> EntryKey:
        """The queue and entry id, which no other delivery has."""
        return self.queue, self.entry

    @property
    def ref(self) -> DeliveryRef:
        """The delivery without its envelope."""
        return DeliveryRef(self.queue, self.id, self.entry)


class SettleAnswer(IntEnum):
    """The answer to one settlement."""

    FENCED = 0
    """Nothing changed, because the delivery no longer belongs to the caller."""
    SETTLED = 1
    """The settlement took effect."""
    STOP_ASKED = 2
    """Nothing changed, because a cancel asked the job to stop. The caller must settle the job again, as Stopped.

    Only Released and Failed get this answer. An Acked job is done, so its settlement takes effect in spite of a cancel,
    but no job of its chain follows it.
    """


class Acked(msgspec.Struct, frozen=True, gc=False):
    """The job is done.

    `retention_ms`: how long the completed job is kept, in ms; 0 = delete the job at once. `result` (JSON) and `report`
    (JSON about the run; b'' = none) are kept with the job. `is_followed`, here and below: a follow-up job, such as the
    next job of a chain, may have to be sent when this job ends, so the backend must look for one. `envelope`: the
    envelope with the chain that the handler has changed; b'' = unchanged.
    """

    queue: str
    id: str
    entry: str
    retention_ms: int = 0
    result: bytes = b"null"
    report: bytes = b""
    is_followed: bool = False
    envelope: bytes = b""


class Stopped(msgspec.Struct, frozen=True, gc=False):
    """The job ended because a cancel asked it to stop. The job is deleted, and counts as cancelled."""

    is_followed: ClassVar[bool] = True

    queue: str
    id: str
    entry: str


class Released(msgspec.Struct, frozen=True, gc=False):
    """The job becomes scheduled, and is due `delay_ms` after this settlement.

    `envelope`, here and below: the envelope with the new counts of attempts and exceptions; b'' = unchanged. `failure`,
    here and below: the reason, a `delayq.core.failure.Failure` as JSON; b'' = the stored failure stays. The backend
    copies earlier failures of the job into the `history` of this failure, oldest first. If there are more than nine,
    the nine oldest stay.
    """

    is_followed: ClassVar[bool] = False

    queue: str
    id: str
    entry: str
    delay_ms: int
    envelope: bytes
    failure: bytes


class Failed(msgspec.Struct, frozen=True, gc=False):
    """The job failed for good."""

    queue: str
    id: str
    entry: str
    envelope: bytes
    failure: bytes
    is_followed: bool = False


Settlement = Acked | Stopped | Released | Failed


class Promoted(msgspec.Struct, frozen=True, gc=False):
    """The result of one promotion.

    `promoted`: number of jobs that became ready. `lost`: number of jobs that failed because their envelopes were
    missing. Their failures have the type PayloadLost. `wait_us`: microseconds until the next promotion is due; 0 = now,
    negative = there is no such time: no job is scheduled, the stream is full, or the queue is paused. `owed`: number of
    records of ended jobs that wait for the relay. `shards`: number of shards of the queue. The number is valid
    only if the call was for the first shard of the queue.
    """

    promoted: int
    lost: int
    wait_us: int
    owed: int = 0
    shards: int = 1


class Renewed(msgspec.Struct, frozen=True, gc=False):
    """The result of one renewal.

    `lease_ms`: the shortest lease of the queues, in ms. `more`: how many pending deliveries the consumer has beyond the
    given ones, for example because the reply to a read was lost. `cancelled`: queue and job id of the given deliveries
    that a cancel asked to stop.
    """

    lease_ms: int
    more: int
    cancelled: list[tuple[str, str]]


class Reclaimed(msgspec.Struct, frozen=True, gc=False):
    """The result of one reclaim.

    `reclaimed`: number of jobs that are ready again. `failed`: number of jobs that failed because their workers
    vanished too often. `hold_ms` > 0: no job is reclaimed for this long, because leases of live workers may have
    expired during an outage or a step of the clock. `lease_ms`: lease of the queue, in ms. `more` = 1: more deliveries
    may have to be checked, so call again at once.
    """

    reclaimed: int
    failed: int
    hold_ms: int
    lease_ms: int = 30_000
    more: int = 0


class Relayed(msgspec.Struct, frozen=True, gc=False):
    """The result of one relay of an outbox.

    `relayed`: number of ended jobs that were handled. `again_in`: seconds until the next call. 0.0 = more ended jobs
    can be handled at once. A larger number = ended jobs have to wait, for example because the next job needs a unique
    key that is taken. None = no ended job is left. `error`: the first error of a follow-up job that could not be sent;
    None = no error. Jobs after an error were handled too.
    """

    relayed: int
    again_in: float | None = None
    error: BackendError | None = None


class Switches(msgspec.Struct, frozen=True, gc=False):
    """The pause and restart switches of operators.

    `paused`: queues that are not read. `is_all_paused`: no queue is read. `restart_ms`: time of the last request to all
    workers to restart, in epoch ms; 0 = none.
    """

    paused: frozenset[str] = frozenset()
    is_all_paused: bool = False
    restart_ms: int = 0


class Repaired(msgspec.Struct, frozen=True, gc=False):
    """The result of one repair: numbers of jobs. All but `pruned` are 0 in a queue that only delayq has changed.

    closed        acknowledged by a plain consumer (a program without delayq), and now settled
    redelivered   ready again
    buried        entries that are not jobs of delayq, moved to `failed`
    mended        jobs whose damaged data was repaired
    pruned        deleted, because the time for which they are kept was over
    """

    closed: int = 0
    redelivered: int = 0
    buried: int = 0
    mended: int = 0
    pruned: int = 0
