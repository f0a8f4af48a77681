"""What a child holds, in memory that it shares with the supervisor. Only this module knows the bytes.

The child writes the slots. The supervisor writes the wish for a replay, which the child takes back. A slot gets its
state last, so a reader never sees half a slot.
"""

import mmap
import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import Final

from delayq.backends.protocol import Delivery, Held

CAPACITY: Final = 1024

_SLOT: Final = struct.Struct("<B41s255s")
_REPLAY: Final = 0
_FIRST_SLOT: Final = 32
_SLOT_SIZE: Final = 1 + _SLOT.size


class SlotState(IntEnum):
    """How far a job is. What was done counts as done only when nothing but an ack is owed."""

    FREE = 0
    WAITING = 1
    RUNNING = 2
    DONE = 3


class SlotTable:
    """The slots of one child. `queues` fixes the number by which a slot names its queue."""

    def __init__(self, queues: Sequence[str]) -> None:
        self._memory = mmap.mmap(-1, _FIRST_SLOT + CAPACITY * _SLOT_SIZE)
        self._queues = list(queues)
        self._numbers = {queue: number for number, queue in enumerate(queues)}

    def write(self, slot: int, delivery: Delivery) -> None:
        """Record a new delivery as waiting."""
        start = _FIRST_SLOT + slot * _SLOT_SIZE
        queue = self._numbers[delivery.queue]
        _SLOT.pack_into(self._memory, start + 1, queue, delivery.entry.encode(), delivery.id.encode())
        self._memory[start] = SlotState.WAITING

    def mark(self, slot: int, state: SlotState) -> None:
        """Record how far the job of a slot is."""
        self._memory[_FIRST_SLOT + slot * _SLOT_SIZE] = state

    def read(self) -> list[tuple[SlotState, Held]]:
        """List the jobs of all slots that are not free."""
        found: list[tuple[SlotState, Held]] = []
        for start in range(_FIRST_SLOT, _FIRST_SLOT + CAPACITY * _SLOT_SIZE, _SLOT_SIZE):
            state = self._memory[start]
            if state != SlotState.FREE:
                queue, entry, job_id = _SLOT.unpack_from(self._memory, start + 1)
                held = Held(self._queues[queue], job_id.rstrip(b"\0").decode(), entry.rstrip(b"\0").decode())
                found.append((SlotState(state), held))
        return found

    def clear(self) -> None:
        """Free everything, for the next child that takes this table."""
        self._memory[:] = bytes(len(self._memory))

    def ask_replay(self) -> None:
        """Ask the child, as the supervisor, to read its pending jobs again."""
        self._memory[_REPLAY] = 1

    def take_replay(self) -> bool:
        """Return, as the child, whether a replay was asked for since the last time."""
        wanted = self._memory[_REPLAY] == 1
        if wanted:
            self._memory[_REPLAY] = 0
        return wanted
