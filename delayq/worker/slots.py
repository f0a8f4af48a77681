"""One child's shared memory: what it holds, and what its supervisor tells it.

Anonymous memory, made before the fork. The child writes what it holds; the supervisor reads that,
renews the leases, and, when the child is dead, knows what was finished, running, or not started.

    words        numbers of the child (first half) and of the supervisor (second half), 8 bytes each
    phases       one byte for each slot: empty, waiting, running, finished, spilled, aside, aside for the last time
    soft_at      when the running job is over its time; 0 = never     (seconds, `Slots.working_clock`)
    started      when it started                                      (the same clock)
    spilled      where its outcome lies in the spill: offset << 32 | length
    orders       what the supervisor wants of it: generation << 3 | SETTLED | CANCEL | LOST
    records      generation, queue and shard, entry id, job id
    spill        outcomes of what is finished and not settled yet

Every cell has one writer. A cell of 8 bytes is stored in one piece, so none is ever half new. A record
is more than one cell: the child makes EPOCH odd while it writes records, and a reader that sees EPOCH
odd or changed reads again. Should a torn record slip through all the same, its job id and entry id do
not belong together, and Redis, which compares them, does nothing with it.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from delayq.core.shards import is_shard, number_of, queue_of, shard_of
from delayq.drivers.base import Claim, Delivery
from delayq.worker.clock import boot_clock

EMPTY: Final = 0
WAITING: Final = 1
RUNNING: Final = 2
FINISHED: Final = 3  # acknowledge; nothing is kept of it
SPILLED: Final = 4  # its outcome is in the spill
ASIDE: Final = 5  # the supervisor shall start it in a process of its own; the child never starts it
ASIDE_LAST: Final = 6  # the same, and the next vanish fails it
PUT_ASIDE: Final = frozenset((ASIDE, ASIDE_LAST))
UNSTARTED: Final = frozenset((WAITING, ASIDE, ASIDE_LAST))

LOST: Final = 1
CANCEL: Final = 2
SETTLED: Final = 4
_ORDER_BITS: Final = 3
_ORDERS: Final = (1 << _ORDER_BITS) - 1

SPILL_BYTES: Final = 1 << 20
MAX_ID: Final = 255

_RECORD = struct.Struct("=QIBB42s255s")
_STRIDE: Final = 320
_QUEUES: Final = 1 << 16
_WORDS: Final = 64


class Word(IntEnum):
    """The numbers. The supervisor writes those from STOP on, the child the others. Times are boot-clock seconds."""

    EPOCH = 0
    DONE = 1  # attempts ended and settled
    EMPTY_AT = 2  # when the last read that found nothing was sent, while nothing was held; else 0
    LOOKED_AT = 3  # the watchdog's last look: a handler that holds the interpreter's lock stops it
    OVER_MEMORY = 4
    FENCED = 5
    ENDED = 6  # it drained and leaves by itself
    READ_AT = 7  # when the last read that brought something was sent
    HOLD = 8  # Hold: what keeps it from fetching
    RESTART = 9  # it was called on to restart
    LATE_MS = 10  # how long after its due time the last delivery came
    STOP = 32  # Stop
    ORDERS = 34  # counts the orders given
    REPLAY = 35  # counts the calls to replay
    SEEN_EPOCH = 36  # which records the last renewal covered
    RENEWED_AT = 37  # when it was sent
    LEASE = 38
    CLOCK_MS = 39  # the server's time minus the monotonic clock
    SWITCHES = 40  # counts how often switches were seen otherwise than before
    LAST_CALL = 42  # 1: the grace of the worker is nearly over, so what runs is interrupted
    STILL = 41  # seconds for which the supervisor noticed that the whole worker stood still


class Stop(IntEnum):
    """What a child is told; anything but NO also ends its wait for work. After DRAIN nothing else is said."""

    NO = 0
    PAUSE = 1
    DRAIN = 2


class Hold(IntEnum):
    """What keeps a child from fetching, beside what it is told by its supervisor."""

    NO = 0
    PAUSED = 1
    MAINTENANCE = 2
    GATE = 3


class Seen(NamedTuple):
    """One slot as the supervisor reads it."""

    slot: int
    generation: int
    claim: Claim
    phase: int
    started: float
    soft_at: float


class _Numbers(dict[str, int]):
    """What a shard is called in a record: its queue's place among those served, and its own number above that."""

    def __missing__(self, shard: str) -> int:
        if not is_shard(shard):
            raise KeyError(shard)
        number = self[shard] = self[queue_of(shard)] + number_of(shard) * _QUEUES
        return number


class Slots:
    """The memory of one child, with `count` slots for deliveries of `queues`."""

    def __init__(self, queues: Sequence[str], count: int) -> None:
        self.count = count
        self._queues = tuple(queues)
        self._numbers = _Numbers({queue: number for number, queue in enumerate(queues)})
        size = _WORDS * 8 + 5 * 8 * count + count * _STRIDE + SPILL_BYTES
        self._memory = memoryview(mmap.mmap(-1, size))
        self._at = 0
        words = self._take(_WORDS * 8)
        self.ints, self.floats = words.cast("q"), words.cast("d")
        self.phases = self._take(8 * count)[:count]
        self.soft_at = self._take(8 * count).cast("d")
        self.started = self._take(8 * count).cast("d")
        self.spilled = self._take(8 * count).cast("Q")
        self.orders = self._take(8 * count).cast("Q")
        self._records = self._take(count * _STRIDE)
        self.spill = self._take(SPILL_BYTES)
        self.ints[Word.EPOCH] = 2  # even and not 0, which `_copy` keeps for what it could not read in one piece

    def working_clock(self) -> float:
        """The clock of timeouts: boot-clock seconds without those in which the whole worker stood still."""
        return boot_clock() - self.floats[Word.STILL]

    def write(self, placed: Sequence[tuple[int, Delivery]]) -> int:
        """Child: put deliveries into empty slots; their generation. Ids longer than `MAX_ID` bytes are none of ours."""
        epoch = self.ints[Word.EPOCH] + 2
        self.ints[Word.EPOCH] = epoch - 1
        pack, records, phases, numbers = _RECORD.pack_into, self._records, self.phases, self._numbers
        for slot, item in placed:
            entry, job_id = item.entry.encode(), item.id.encode()
            pack(records, slot * _STRIDE, epoch, numbers[item.queue], len(entry), len(job_id), entry, job_id)
            phases[slot] = WAITING
        self.ints[Word.EPOCH] = epoch
        return epoch

    def read(self) -> tuple[int, list[Seen]]:
        """Supervisor: what is held, and the epoch this is true for. A job put aside that is LOST is left out:

        another process has it, while this child may not have read the order yet.
        """
        epoch, phases, records = self._copy()
        for _ in range(100):
            if epoch:
                break
            epoch, phases, records = self._copy()
        held = [self._seen(slot, phase, records) for slot, phase in enumerate(phases) if phase != EMPTY]
        if not PUT_ASIDE.isdisjoint(phases):
            held = [item for item in held if not self._is_gone(item)]
        return epoch, held

    def outcome(self, slot: int) -> bytes:
        """What the child spilled for a slot."""
        offset, length = self.spilled[slot] >> 32, self.spilled[slot] & 0xFFFFFFFF
        return bytes(self.spill[offset : offset + length])

    def give_order(self, seen: Seen, order: int) -> None:
        """Supervisor: tell the child something about what lies, or lay, in a slot."""
        before = self.orders[seen.slot]
        known = before & _ORDERS if before >> _ORDER_BITS == seen.generation else 0
        self.orders[seen.slot] = seen.generation << _ORDER_BITS | known | order
        self.ints[Word.ORDERS] += 1

    def orders_for(self, slot: int, generation: int) -> int:
        """What was ordered for this delivery: 0, or any of LOST (somebody else's), CANCEL, SETTLED (done for it)."""
        order = self.orders[slot]
        return order & _ORDERS if order >> _ORDER_BITS == generation else 0

    def confirm(self, epoch: int, sent_at: float) -> None:
        """Supervisor: everything up to `epoch` was renewed by a call sent at `sent_at`."""
        self.ints[Word.SEEN_EPOCH] = -1
        self.floats[Word.RENEWED_AT] = sent_at
        self.ints[Word.SEEN_EPOCH] = epoch

    def confirmed(self) -> tuple[int, float]:
        """The last `confirm`; epoch -1 while it is being written."""
        epoch, sent_at = self.ints[Word.SEEN_EPOCH], self.floats[Word.RENEWED_AT]
        return (epoch, sent_at) if epoch == self.ints[Word.SEEN_EPOCH] else (-1, 0.0)

    def _is_gone(self, item: Seen) -> bool:
        return item.phase in PUT_ASIDE and bool(self.orders_for(item.slot, item.generation) & LOST)

    def _copy(self) -> tuple[int, bytes, bytes]:
        """Phases and records, and their epoch; 0 when they were written meanwhile: good enough to renew, no more."""
        epoch = self.ints[Word.EPOCH]
        phases, records = bytes(self.phases), bytes(self._records)
        whole = epoch % 2 == 0 and epoch == self.ints[Word.EPOCH]
        return (epoch if whole else 0), phases, records

    def _seen(self, slot: int, phase: int, records: bytes) -> Seen:
        generation, number, entry_size, id_size, entry, job_id = _RECORD.unpack_from(records, slot * _STRIDE)
        place = number % _QUEUES
        queue = shard_of(self._queues[place] if place < len(self._queues) else self._queues[0], number // _QUEUES)
        job = job_id[:id_size].decode("utf-8", "replace")
        claim = Claim(queue, job, entry[:entry_size].decode("ascii", "replace"))
        return Seen(slot, generation, claim, phase, self.started[slot], self.soft_at[slot])

    def _take(self, size: int) -> memoryview:
        part = self._memory[self._at : self._at + size]
        self._at += size
        return part
