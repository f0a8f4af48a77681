"""Every Redis key, spelt once.

The queue's name is the hash tag, so that all keys of one queue lie in one Cluster slot and one
script may touch them together.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

GROUP = "delayq"
PER_QUEUE = (
    "scheduled", "jobs", "stream", "entries", "recoveries", "failed", "errors", "completed", "results",
    "unique", "locks", "cancel", "progress", "outbox", "stamps", "meta",
)  # fmt: skip


class Keys(msgspec.Struct, frozen=True):
    """The keys of one queue under one prefix."""

    prefix: str
    queue: str

    def of(self, name: str) -> str:
        """The key called `name` in the contract (`scheduled`, `jobs`, …)."""
        return f"{self.prefix}:{{{self.queue}}}:{name}"

    @property
    def stream(self) -> str:
        return self.of("stream")

    @property
    def meta(self) -> str:
        return self.of("meta")

    def once(self, token: str) -> str:
        """Where the first answer of a call is kept, so that the same call repeated answers the same."""
        return self.of(f"once:{token}")


class LimitKeys(msgspec.Struct, frozen=True):
    """The keys of one limit under one prefix: a slot of its own, because jobs of several queues may share it."""

    PER_KEY: ClassVar = ("holders", "waiting")
    PER_LIMIT: ClassVar = (
        "places", "rates", "rates_until", "turns", "passed", "breakers", "breakers_until", "counters",
    )  # fmt: skip

    prefix: str
    name: str

    def of(self, role: str) -> str:
        """The key called `role` in the contract (`places`, `rates`, …)."""
        return f"{self.prefix}:{{limit:{self.name}}}:{role}"

    def of_key(self, role: str, key: str) -> str:
        """The same of one key of the limit (`holders`, `waiting`)."""
        return f"{self.prefix}:{{limit:{self.name}}}:{role}:{key}"


class Globals(msgspec.Struct, frozen=True):
    """The keys that belong to no queue."""

    prefix: str

    @property
    def queues(self) -> str:
        return f"{self.prefix}:queues"

    @property
    def limits(self) -> str:
        """The names of limits that were asked."""
        return f"{self.prefix}:limits"

    @property
    def audit(self) -> str:
        """What people did by hand, and why."""
        return f"{self.prefix}:audit"

    @property
    def workers(self) -> str:
        return f"{self.prefix}:workers"

    @property
    def wake(self) -> str:
        """The pub/sub channel for "the head of this queue moved earlier"."""
        return f"{self.prefix}:wake"

    @property
    def control(self) -> str:
        """What holds for all workers at once: a pause of everything, maintenance, the call to restart."""
        return f"{self.prefix}:control"

    @property
    def batches(self) -> str:
        """All batches: id -> when it began."""
        return f"{self.prefix}:batches"

    def worker(self, name: str) -> str:
        return f"{self.prefix}:worker:{name}"
