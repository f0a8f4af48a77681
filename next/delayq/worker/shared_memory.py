"""The jobs of a child, in memory that it shares with the supervisor. Only this module knows the bytes.

The child writes the slots; the supervisor writes orders. A slot gets its state last, so a reader never takes half a
slot for a whole one: a queue never uses an entry id again, so a slot that shows the same queue and entry before and
after a look was not changed meanwhile.

Deadlines count by a clock that both share: the monotonic clock less the time in which the whole worker stood still.
"""

import mmap
import struct
import time
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Final

import msgspec

from delayq.backends.protocol import MAX_ENTRY_BYTES, Delivery, DeliveryRef, EntryKey
from delayq.core.names import MAX_ID_BYTES

CAPACITY: Final = 1024

_REPLAY: Final = 0
_STOP: Final = 1
_PAUSE: Final = 2
_STOOD_STILL: Final = 8
_FINISHED: Final = 16
_IDLE_SINCE: Final = 24
_RESTART_MS: Final = 32
_TURNS: Final = 40
_FIRST_SLOT: Final = 64

_STATE: Final = 0
_ORDER: Final = 1
_USE: Final = 2
_LIMIT: Final = 8
_NAMES: Final = struct.Struct(f"<H{MAX_ENTRY_BYTES}s{MAX_ID_BYTES}s")
"""The number of the queue, the entry id, and the job id, which is cut if it is too long: such a job fails at once."""
_NAMES_AT: Final = 16
_SLOT_SIZE: Final = 320


class SlotState(IntEnum):
    """How far a job is. What was done counts as done only when nothing but an ack is owed."""

    FREE = 0
    WAITING = 1
    RUNNING = 2
    DONE = 3


class Stop(IntEnum):
    """Orders of the supervisor to a child, each more urgent than the one before."""

    NO = 0
    DRAIN = 1
    """Take nothing new; what runs may finish."""
    INTERRUPT = 2
    """The grace is nearly over: raise WorkerShutdown in what runs."""


class SlotView(msgspec.Struct, frozen=True, gc=False):
    """One slot as the supervisor sees it. `limit` is when the job must have ended, 0 = never.

    `use` counts the jobs that the slot has had: an order is for one of them.
    """

    number: int
    state: SlotState
    ref: DeliveryRef
    limit: float
    is_cancelled: bool
    use: int


class SlotTable:
    """The slots of one child. `queues` fixes the number by which a slot names its queue."""

    def __init__(self, queues: Sequence[str], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._memory = mmap.mmap(-1, _FIRST_SLOT + CAPACITY * _SLOT_SIZE)
        self._queues = list(queues)
        self._numbers = {queue: number for number, queue in enumerate(queues)}
        self._clock = clock
        self._floats = memoryview(self._memory).cast("d")
        self._counts = memoryview(self._memory).cast("Q")

    def now(self) -> float:
        """Return the time by which deadlines count."""
        return self._clock() - self._floats[_STOOD_STILL // 8]

    # -- the child -----------------------------------------------------------------------------------------------------

    def write(self, slot: int, delivery: Delivery) -> None:
        """Record a new delivery as waiting. Raises ValueError for an entry id that is too long."""
        start = _FIRST_SLOT + slot * _SLOT_SIZE
        queue, entry = self._numbers[delivery.queue], delivery.entry.encode()
        if entry[MAX_ENTRY_BYTES:]:
            raise ValueError(f"The entry id {delivery.entry!r} has {len(entry)} bytes; at most {MAX_ENTRY_BYTES} fit.")
        _NAMES.pack_into(self._memory, start + _NAMES_AT, queue, entry, delivery.id.encode("utf-8", "replace"))
        self._floats[(start + _LIMIT) // 8] = 0.0
        self._memory[start + _ORDER] = 0
        self._memory[start + _USE] = self._memory[start + _USE] % 255 + 1
        self._memory[start] = SlotState.WAITING

    def mark(self, slot: int, state: SlotState) -> None:
        """Record how far the job of a slot is."""
        self._memory[_FIRST_SLOT + slot * _SLOT_SIZE] = state

    def free(self, slots: Sequence[int]) -> None:
        """Record that slots hold nothing any more."""
        for slot in slots:
            self._memory[_FIRST_SLOT + slot * _SLOT_SIZE] = SlotState.FREE

    def set_limit(self, slot: int, limit: float) -> None:
        """Record when a running job must have ended."""
        self._floats[(_FIRST_SLOT + slot * _SLOT_SIZE + _LIMIT) // 8] = limit

    def is_cancelled(self, slot: int) -> bool:
        """Whether the job of a slot was asked to stop."""
        start = _FIRST_SLOT + slot * _SLOT_SIZE
        return self._memory[start + _ORDER] == self._memory[start + _USE]

    def take_replay(self) -> bool:
        """Return whether a replay was asked for since the last time."""
        wanted = self._memory[_REPLAY] == 1
        if wanted:
            self._memory[_REPLAY] = 0
        return wanted

    def is_to_stop(self) -> bool:
        """Whether the supervisor wants the child to stop."""
        return self._memory[_STOP] != Stop.NO

    def stop_order(self) -> Stop:
        """Return what the supervisor wants."""
        return Stop(self._memory[_STOP])

    def is_paused(self) -> bool:
        """Whether the supervisor wants nothing new to be taken."""
        return self._memory[_PAUSE] == 1

    def set_busy(self) -> None:
        """Record that there is something to do."""
        self._floats[_IDLE_SINCE // 8] = 0.0

    def set_idle(self, since: float) -> None:
        """Record that there has been nothing to do since then, unless that is known already."""
        self._floats[_IDLE_SINCE // 8] = self._floats[_IDLE_SINCE // 8] or since

    def set_restart(self, restart_ms: int) -> None:
        """Record when all workers were last asked to restart, as the child has read it."""
        self._counts[_RESTART_MS // 8] = restart_ms

    def turns(self) -> int:
        """Return how many turns the supervisor has taken since the last `clear`."""
        return self._counts[_TURNS // 8]

    def count_finished(self) -> None:
        """Count a job that has ended."""
        self._counts[_FINISHED // 8] += 1

    # -- the supervisor ------------------------------------------------------------------------------------------------

    def read(self) -> list[SlotView]:
        """List the slots that are not free."""
        views = [self._view(number) for number in range(CAPACITY) if self._memory[_FIRST_SLOT + number * _SLOT_SIZE]]
        return [view for view in views if view is not None]

    def cancel(self, key: EntryKey) -> None:
        """Ask the child to stop a job. When the slot has been given to another one by now, that does not heed it."""
        for view in self.read():
            if view.ref.key == key:
                self._memory[_FIRST_SLOT + view.number * _SLOT_SIZE + _ORDER] = view.use

    def ask_replay(self) -> None:
        """Ask the child to read its pending jobs again."""
        self._memory[_REPLAY] = 1

    def order_stop(self, stop: Stop) -> None:
        """Tell the child to stop; an order is never taken back."""
        self._memory[_STOP] = max(self._memory[_STOP], stop)

    def set_paused(self, is_paused: bool) -> None:
        """Tell the child to take nothing new for now, or to go on."""
        self._memory[_PAUSE] = is_paused

    def idle_for(self) -> float | None:
        """Return for how many seconds the child has had nothing to do; None when it has."""
        since = self._floats[_IDLE_SINCE // 8]
        return self._clock() - since if since else None

    def restart_ms(self) -> int:
        """Return when all workers were last asked to restart; 0 = never."""
        return self._counts[_RESTART_MS // 8]

    def add_standstill(self, seconds: float) -> None:
        """Move all deadlines: the whole worker stood still for so long."""
        self._floats[_STOOD_STILL // 8] += seconds

    def count_turn(self) -> None:
        """Record a turn of the supervisor, after it has extended the deadlines if it was suspended."""
        self._counts[_TURNS // 8] += 1

    def finished(self) -> int:
        """Return how many jobs have ended since the last `clear`."""
        return self._counts[_FINISHED // 8]

    def clear(self) -> None:
        """Free everything, for the next child that takes this table. A pause stays."""
        is_paused = self._memory[_PAUSE]
        self._memory[:] = bytes(len(self._memory))
        self._memory[_PAUSE] = is_paused

    def _view(self, number: int) -> SlotView | None:
        """Read one slot; None when it was changed meanwhile."""
        start = _FIRST_SLOT + number * _SLOT_SIZE
        names = queue, entry, job_id = _NAMES.unpack_from(self._memory, start + _NAMES_AT)
        state, limit = self._memory[start], self._floats[(start + _LIMIT) // 8]
        use = self._memory[start + _USE]
        is_cancelled = self._memory[start + _ORDER] == use
        if names != _NAMES.unpack_from(self._memory, start + _NAMES_AT) or state == SlotState.FREE:
            return None
        held = DeliveryRef(
            self._queues[queue], job_id.rstrip(b"\0").decode("utf-8", "ignore"), entry.rstrip(b"\0").decode()
        )
        return SlotView(number, SlotState(state), held, limit, is_cancelled, use)
