"""The memory that a child shares with its supervisor: it shows the jobs of the child, and carries orders to the child.

Each job of the child has a slot in this memory. The child writes the slots, and the supervisor writes the orders. Only
this module knows the layout of the bytes.

The two processes share no lock, because a child can be killed while it holds one. Two rules replace a lock:

* The child writes the state of a slot last, so that a half-written slot still counts as free.
* The supervisor reads queue, entry id and job id of a slot twice, before and after the other fields. If both readings
  are equal, the slot was not reused in between, because a queue never uses an entry id again.

Time limits of jobs use a clock that both processes share: the monotonic clock minus the time in which the worker was
suspended.
"""

import mmap
import struct
import time
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Final

import msgspec

from delayq.backends.values import MAX_ENTRY_BYTES, Delivery, DeliveryRef, EntryKey
from delayq.core.names import MAX_ID_BYTES

CAPACITY: Final = 1024
"""Number of slots of a child."""

_REPLAY: Final = 0
_STOP: Final = 1
_PAUSE: Final = 2
_UNREAD: Final = 3
_SUSPENDED: Final = 8
_FINISHED: Final = 16
_IDLE_SINCE: Final = 24
_RESTART_MS: Final = 32
_TURNS: Final = 40
_FIRST_SLOT: Final = 64

_STATE: Final = 0
_ORDER: Final = 1
_USE: Final = 2
_PART: Final = 3
_LIMIT: Final = 8
_SINCE: Final = 16
_NAMES_AT: Final = 24
_NAMES: Final = struct.Struct(f"<H{MAX_ENTRY_BYTES}s{MAX_ID_BYTES}s")
"""The number of the queue, the entry id, and the job id. A job id that is too long is cut; such a job fails at once."""
_NAME_BYTES: Final = 128
"""Size of the job name in a slot. A longer name is cut, because the name is only shown to people."""
_NEW: Final = struct.Struct(f"<3B4x2d{_NAMES.format.removeprefix('<')}{_NAME_BYTES}s")
"""The parts of a slot that a new delivery overwrites: order, use, part, limit, since, _NAMES and the job name.

The state is written separately, and last.
"""
_NAME: Final = _NAMES_AT + _NAMES.size
_SLOT_SIZE: Final = -(-(_ORDER + _NEW.size) // 8) * 8


class SlotState(IntEnum):
    """The state of a job in its slot.

    DONE: the handler has returned, and the supervisor could acknowledge the job without data of the child. If the child
    has such data, for example a result to keep or a failure, the state remains RUNNING.
    """

    FREE = 0
    WAITING = 1
    RUNNING = 2
    DONE = 3


class Part(IntEnum):
    """The code of the application that may be running for a job: handler, backoff function, hook or listener."""

    HANDLER = 0
    BACKOFF = 1
    HOOK = 2
    LISTENER = 3
    LISTENER_OF_DONE = 4
    """A listener of a job that only has to be acknowledged. If the child dies, the supervisor acknowledges the job."""


class Stop(IntEnum):
    """Stop orders of the supervisor to a child. INTERRUPT includes DRAIN."""

    NO = 0
    DRAIN = 1
    """Take no new jobs, and let running jobs finish."""
    INTERRUPT = 2
    """Interrupt running handlers by WorkerShutdown, because the grace period is about to end."""


_FREE: Final = SlotState.FREE
_WAITING: Final = SlotState.WAITING
_RUNNING: Final = SlotState.RUNNING
_HANDLER: Final = Part.HANDLER
_NO_STOP: Final = Stop.NO
"""The members that a child needs for each job. In Python 3.11, reading a member of an enum class takes 70 ns, and
reading a constant of this module 5 ns.
"""


class SlotView(msgspec.Struct, frozen=True, gc=False):
    """One slot, as the supervisor reads it.

    `limit`: when the time limit of the job ends, in `SlotTable.now()` time; 0 = no limit. `is_cancelled`: the
    supervisor ordered the job to stop. `use`: a number that changes with each job of the slot, so that an order to stop
    a job does not reach the next job. `since`: when a running job started, by the `clock` of SlotTable; 0 = not
    started. `name`: the job name, cut to 128 bytes; '' = the child has not read the job yet.
    """

    number: int
    state: SlotState
    ref: DeliveryRef
    limit: float
    is_cancelled: bool
    use: int
    since: float
    name: str
    part: Part = Part.HANDLER


class SlotTable:
    """The slots of one child. A slot names its queue by the position of the queue in `queues`."""

    def __init__(self, queues: Sequence[str], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._memory = mmap.mmap(-1, _FIRST_SLOT + CAPACITY * _SLOT_SIZE)
        self.queues = list(queues)
        self._numbers = {queue: number for number, queue in enumerate(queues)}
        self._written_names: dict[str, bytes] = {}
        self._clock = clock
        self._floats = memoryview(self._memory).cast("d")
        self._counts = memoryview(self._memory).cast("Q")

    def now(self) -> float:
        """Return the time of the clock for time limits, in seconds."""
        return self._clock() - self._floats[_SUSPENDED // 8]

    # -- the child -----------------------------------------------------------------------------------------------------

    def write(self, slot: int, delivery: Delivery) -> None:
        """Write a new delivery into a slot, as waiting. Raises ValueError if its entry id is too long."""
        start = _FIRST_SLOT + slot * _SLOT_SIZE
        queue, entry = self._numbers[delivery.queue], delivery.entry.encode()
        if len(entry) > MAX_ENTRY_BYTES:
            raise ValueError(f"The entry id {delivery.entry!r} has {len(entry)} bytes; at most {MAX_ENTRY_BYTES} fit.")
        use, job_id = self._memory[start + _USE] % 255 + 1, delivery.id.encode("utf-8", "replace")
        _NEW.pack_into(self._memory, start + _ORDER, 0, use, _HANDLER, 0.0, 0.0, queue, entry, job_id, b"")
        self._memory[start] = _WAITING

    def mark(self, slot: int, state: SlotState) -> None:
        """Change the state of a slot."""
        self._memory[_FIRST_SLOT + slot * _SLOT_SIZE] = state

    def mark_running(self, slot: int, *, since: float) -> None:
        """Mark a job as running. `since`: its start time, by the `clock` of this table."""
        start = _FIRST_SLOT + slot * _SLOT_SIZE
        self._floats[(start + _SINCE) // 8] = since
        self._memory[start] = _RUNNING

    def mark_part(self, slot: int, part: Part) -> None:
        """Record which code of the application may run next for a job."""
        self._memory[_FIRST_SLOT + slot * _SLOT_SIZE + _PART] = part

    def free(self, slots: Sequence[int]) -> None:
        """Mark slots as free."""
        for slot in slots:
            self._memory[_FIRST_SLOT + slot * _SLOT_SIZE] = _FREE

    def begin(self, slot: int, *, limit: float, name: str) -> None:
        """Set the name of a running job, and when its time limit ends, in `now()` time; 0 = no limit.

        The padded names are kept, because each job writes one, and a program declares only a few names.
        """
        start = _FIRST_SLOT + slot * _SLOT_SIZE
        try:
            written = self._written_names[name]
        except KeyError:
            written = name.encode("utf-8", "replace")[:_NAME_BYTES].ljust(_NAME_BYTES, b"\0")
            self._written_names[name] = written
        self._memory[start + _NAME : start + _NAME + _NAME_BYTES] = written
        self._floats[(start + _LIMIT) // 8] = limit

    def is_cancelled(self, slot: int) -> bool:
        """Return True if the supervisor ordered the job of a slot to stop."""
        start = _FIRST_SLOT + slot * _SLOT_SIZE
        return self._memory[start + _ORDER] == self._memory[start + _USE]

    def take_replay(self) -> bool:
        """Return True if, since the last call, the supervisor ordered a replay: to read the pending jobs again."""
        wanted = self._memory[_REPLAY] == 1
        if wanted:
            self._memory[_REPLAY] = 0
        return wanted

    def is_to_stop(self) -> bool:
        """Return True if the supervisor ordered the child to stop."""
        return self._memory[_STOP] != _NO_STOP

    def stop_order(self) -> Stop:
        """Return the latest stop order of the supervisor."""
        return Stop(self._memory[_STOP])

    def is_paused(self) -> bool:
        """Return True if the supervisor ordered the child to take no new jobs for now."""
        return self._memory[_PAUSE] == 1

    def set_busy(self) -> None:
        """Record that the child has jobs."""
        self._floats[_IDLE_SINCE // 8] = 0.0

    def set_idle(self, since: float, *, has_unread: bool = False) -> None:
        """Record since when the child has had no job. If the child was idle before, the earlier time stays.

        `has_unread`: a queue could not be read.
        """
        self._memory[_UNREAD] = has_unread
        self._floats[_IDLE_SINCE // 8] = self._floats[_IDLE_SINCE // 8] or since

    def set_restart(self, restart_ms: int) -> None:
        """Record when all workers were last asked to restart, in epoch ms, as the child read it from the backend."""
        self._counts[_RESTART_MS // 8] = restart_ms

    def turns(self) -> int:
        """Return how many turns of its loop the supervisor has made since the last `clear`."""
        return self._counts[_TURNS // 8]

    def count_finished(self) -> None:
        """Count one finished job."""
        self._counts[_FINISHED // 8] += 1

    # -- the supervisor ------------------------------------------------------------------------------------------------

    def read(self) -> list[SlotView]:
        """List the slots that are not free."""
        views = [self._view(number) for number in range(CAPACITY) if self._memory[_FIRST_SLOT + number * _SLOT_SIZE]]
        return [view for view in views if view is not None]

    def running(self) -> list[SlotView]:
        """List the slots of running jobs. This costs less than `read`, because a busy child has many other jobs."""
        states = self._memory[_FIRST_SLOT::_SLOT_SIZE]
        views = [self._view(number) for number, state in enumerate(states) if state == _RUNNING]
        return [view for view in views if view is not None and view.state is _RUNNING]

    def cancel(self, key: EntryKey) -> None:
        """Order the child to stop a job. If another job has got its slot by now, the order has no effect."""
        for view in self.read():
            if view.ref.key == key:
                self._memory[_FIRST_SLOT + view.number * _SLOT_SIZE + _ORDER] = view.use

    def ask_replay(self) -> None:
        """Order the child to read its pending jobs again (a replay)."""
        self._memory[_REPLAY] = 1

    def order_stop(self, stop: Stop) -> None:
        """Order the child to stop. A stop order is never taken back."""
        self._memory[_STOP] = max(self._memory[_STOP], stop)

    def set_paused(self, is_paused: bool) -> None:
        """Order the child to take no new jobs for now, or to resume."""
        self._memory[_PAUSE] = is_paused

    def idle_for(self) -> float | None:
        """Return for how many seconds the child has had no job, or None if it has a job."""
        since = self._floats[_IDLE_SINCE // 8]
        return self._clock() - since if since else None

    def has_unread(self) -> bool:
        """Return True if the idle child could not read a queue."""
        return self._memory[_UNREAD] == 1

    def restart_ms(self) -> int:
        """Return the time of the latest restart request that the child has read, in epoch ms; 0 = none."""
        return self._counts[_RESTART_MS // 8]

    def extend_deadlines(self, seconds: float) -> None:
        """Extend the time limits of all jobs, because the worker was suspended for this time."""
        self._floats[_SUSPENDED // 8] += seconds

    def count_turn(self) -> None:
        """Record a turn of the supervisor. After a suspension, call `extend_deadlines` first.

        A child that was suspended too waits for this turn, because the time limits are extended by then.
        """
        self._counts[_TURNS // 8] += 1

    def finished(self) -> int:
        """Return how many jobs have finished since the last `clear`."""
        return self._counts[_FINISHED // 8]

    def clear(self) -> None:
        """Clear all slots and orders for the next child that uses this table. Only a pause stays in force."""
        is_paused = self._memory[_PAUSE]
        self._memory[:] = bytes(len(self._memory))
        self._memory[_PAUSE] = is_paused

    def _view(self, number: int) -> SlotView | None:
        """Read one slot. Return None if it is free or was changed in the meantime."""
        start = _FIRST_SLOT + number * _SLOT_SIZE
        names = queue, entry, job_id = _NAMES.unpack_from(self._memory, start + _NAMES_AT)
        state, limit = self._memory[start], self._floats[(start + _LIMIT) // 8]
        use = self._memory[start + _USE]
        is_cancelled = self._memory[start + _ORDER] == use
        since = self._floats[(start + _SINCE) // 8]
        name = self._memory[start + _NAME : start + _NAME + _NAME_BYTES].rstrip(b"\0").decode("utf-8", "ignore")
        part = Part(self._memory[start + _PART])
        if names != _NAMES.unpack_from(self._memory, start + _NAMES_AT) or state == _FREE:
            return None
        held = DeliveryRef(
            self.queues[queue], job_id.rstrip(b"\0").decode("utf-8", "ignore"), entry.rstrip(b"\0").decode()
        )
        return SlotView(number, SlotState(state), held, limit, is_cancelled, use, since, name, part)
