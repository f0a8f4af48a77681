"""Options of a connection, unless a call says otherwise. Durations are milliseconds, sizes bytes."""

import re
from typing import Final

import msgspec

from delayq.core.backoff import DEFAULT, Backoff
from delayq.core.display import shown
from delayq.core.errors import InvalidInput

_REPLICAS: Final = re.compile(r"replicas:([1-9][0-9]?)")


class Durability(msgspec.Struct, frozen=True):
    """What a producer waits for before its call returns: copies on replicas, an fsync, or nothing."""

    replicas: int = 0
    fsync: bool = False

    @property
    def waits(self) -> bool:
        """Whether there is anything to wait for."""
        return self.fsync or self.replicas > 0


MEMORY: Final = Durability()


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a connection.

    `lease_ms` counts for a queue that is seen for the first time; later the queue's own lease does. `high_water`:
    entries that a stream may hold before jobs wait in the set instead. `keep_failed_ms`: how long failed jobs are kept.
    """

    queue: str = "default"
    retention_ms: int = 0
    max_payload: int = 256 * 1024
    lease_ms: int = 30_000
    high_water: int = 100_000
    max_recoveries: int = 3
    tidy_every_ms: int = 10_000
    keep_failed_ms: int = 90 * 86_400_000
    durability: Durability = MEMORY
    tries: int = 5
    timeout_ms: int = 60_000
    backoff: Backoff = DEFAULT


DEFAULTS: Final = Options()
"""What holds when nothing is said: in the settings, and for jobs whose handler declares nothing."""


def parse_durability(text: str) -> Durability:
    """Read `memory`, `replicas:n` or `fsync`; raises InvalidInput."""
    if text == "memory":
        return MEMORY
    if text == "fsync":
        return Durability(fsync=True)
    if found := _REPLICAS.fullmatch(text):
        return Durability(replicas=int(found[1]))
    raise InvalidInput(
        f"The durability {shown(text)} is not known.", hint="Use memory, fsync or replicas:1.", field="durability"
    )
