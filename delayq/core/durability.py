"""How safe something must be before its answer is given, by name.

    memory        the server has carried it out (the default; nothing is waited for)
    replicas:n    and n of its replicas have it in their memory
    fsync         and it is on the server's own disk: written to the append-only file, and that file synced

What each of them may still lose stands in docs/guarantees.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from delayq.core.durations import format_duration
from delayq.core.errors import InvalidInput
from delayq.core.shown import shown

MOST_REPLICAS: Final = 64
_REPLICAS: Final = re.compile(r"replicas:([1-9][0-9]?)")
_EXAMPLE: Final = f"Use memory, replicas:n (1 to {MOST_REPLICAS}) or fsync."


@dataclass(frozen=True, slots=True)
class Durability:
    """What must be true before an answer is given. Neither of the two: the server's memory is enough."""

    replicas: int = 0
    fsync: bool = False

    @property
    def waits(self) -> bool:
        """Whether anything is waited for at all."""
        return self.fsync or self.replicas > 0

    @property
    def probe(self) -> tuple[str | int, ...]:
        """A command that the server refuses if it cannot tell, and that waits for nothing."""
        return ("WAITAOF", 1, 0, 1) if self.fsync else ("WAIT", 0, 1)

    def wait(self, most_ms: int) -> tuple[str | int, ...]:
        """The command that waits, at most so long, until what the connection wrote before is as safe as this says."""
        if self.fsync:
            return ("WAITAOF", 1, self.replicas, most_ms)
        return ("WAIT", self.replicas, most_ms)

    def missing(self, reply: object, most_ms: int) -> str:
        """What that command's reply falls short of, for a sentence; '' when nothing is missing."""
        if self.fsync:
            disk, copies = (int(part) for part in reply) if isinstance(reply, list | tuple) else (0, 0)
            if not disk:
                return f"it was not on the server's disk within {format_duration(most_ms)}"
        else:
            copies = int(reply) if isinstance(reply, int) else 0
        if copies >= self.replicas:
            return ""
        return f"{copies} of {self.replicas} replicas had it within {format_duration(most_ms)}"

    def __str__(self) -> str:
        if self.fsync:
            return "fsync"
        return f"replicas:{self.replicas}" if self.replicas else "memory"


MEMORY: Final = Durability()


def parse_durability(text: str) -> Durability:
    """Read one by its name. Raises `InvalidInput`."""
    if text == "memory":
        return MEMORY
    if text == "fsync":
        return Durability(fsync=True)
    found = _REPLICAS.fullmatch(text)
    if found is None or int(found[1]) > MOST_REPLICAS:
        raise InvalidInput(f"{shown(text)} is no durability.", hint=_EXAMPLE)
    return Durability(replicas=int(found[1]))


def kept_durability(value: bytes | None) -> Durability | None:
    """What a queue keeps of its own; None for nothing, and for what somebody else wrote there."""
    if not value:
        return None
    try:
        return parse_durability(value.decode("ascii"))
    except (InvalidInput, UnicodeDecodeError):
        return None


def strictest(wanted: Iterable[Durability]) -> Durability:
    """One that is as safe as each of them."""
    together = list(wanted)
    return Durability(max((one.replicas for one in together), default=0), any(one.fsync for one in together))
