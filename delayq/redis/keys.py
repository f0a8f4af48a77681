"""Every Redis key, spelt once.

The queue's name is the hash tag, so that all keys of one queue lie in one Cluster slot and one
script may touch them together.
"""

from __future__ import annotations

import msgspec

GROUP = "delayq"
PER_QUEUE = (
    "scheduled", "jobs", "stream", "entries", "recoveries", "failed", "errors", "completed", "results",
    "unique", "locks", "cancel", "progress", "outbox", "meta",
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


class Globals(msgspec.Struct, frozen=True):
    """The keys that belong to no queue."""

    prefix: str

    @property
    def queues(self) -> str:
        return f"{self.prefix}:queues"

    @property
    def workers(self) -> str:
        return f"{self.prefix}:workers"

    @property
    def wake(self) -> str:
        """The pub/sub channel for "the head of this queue moved earlier"."""
        return f"{self.prefix}:wake"

    @property
    def cancels(self) -> str:
        """The pub/sub channel for "this running job is asked to stop"."""
        return f"{self.prefix}:cancel"

    @property
    def control(self) -> str:
        """What holds for all workers at once: a pause of everything, maintenance, the call to restart."""
        return f"{self.prefix}:control"

    def worker(self, name: str) -> str:
        return f"{self.prefix}:worker:{name}"
