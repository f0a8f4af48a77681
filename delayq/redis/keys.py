"""Every Redis key, spelt once.

The queue's name is the hash tag, so that all keys of one queue lie in one Cluster slot and one
script may touch them together.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar, Final

import msgspec

GROUP = "delayq"
TYPES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "scheduled": "zset",
        "jobs": "hash",
        "stream": "stream",
        "entries": "hash",
        "recoveries": "hash",
        "failed": "zset",
        "errors": "hash",
        "completed": "zset",
        "results": "hash",
        "unique": "hash",
        "locks": "hash",
        "cancel": "hash",
        "progress": "hash",
        "outbox": "stream",
        "stamps": "hash",
        "aside": "hash",
        "activity": "hash",
        "history": "hash",
        "types_by_hour": "hash",
        "types_by_day": "hash",
        "meta": "hash",
    }
)
"""What each key of a queue is, in the words of `TYPE`."""
PER_QUEUE = tuple(TYPES)


class Keys(msgspec.Struct, frozen=True):
    """The keys of one queue under one prefix."""

    prefix: str
    queue: str

    def of(self, name: str) -> str:
        """The key called `name` in the contract (`scheduled`, `jobs`, …)."""
        return f"{self.prefix}:{{{self.queue}}}:{name}"

    def types(self) -> dict[str, str]:
        """The key and the type of each."""
        return {self.of(name): kind for name, kind in TYPES.items()}

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


class FailedKeys(msgspec.Struct, frozen=True):
    """The keys of failed jobs of other connections, kept here for them: in a slot of their own."""

    prefix: str

    @property
    def at(self) -> str:
        """When each failed: id -> epoch ms."""
        return f"{self.prefix}:{{failed-jobs}}:at"

    @property
    def rows(self) -> str:
        """Their records: id -> JSON."""
        return f"{self.prefix}:{{failed-jobs}}:rows"


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
    def cancels(self) -> str:
        """The pub/sub channel for "this running job is asked to stop"."""
        return f"{self.prefix}:cancel"

    @property
    def switches(self) -> str:
        """The pub/sub channel for "the switches of this queue, or of all workers, may have changed"."""
        return f"{self.prefix}:switch"

    @property
    def control(self) -> str:
        """What holds for all workers at once: a pause of everything, maintenance, the call to restart."""
        return f"{self.prefix}:control"

    @property
    def batches(self) -> str:
        """All batches: id -> when it began."""
        return f"{self.prefix}:batches"

    @property
    def secret(self) -> str:
        """What the servers of the dashboard sign with."""
        return f"{self.prefix}:secret"

    @property
    def probe(self) -> str:
        """Never written: what a write is tried on that must change nothing."""
        return f"{self.prefix}:probe"

    @property
    def logouts(self) -> str:
        """Sessions of the dashboard that logged out: session -> when its cookie ends, Unix seconds."""
        return f"{self.prefix}:logouts"

    def worker(self, name: str) -> str:
        return f"{self.prefix}:worker:{name}"

    def order(self, worker: str) -> str:
        """What an operator told this worker."""
        return f"{self.prefix}:order:{worker}"

    def new_queues(self, key_id: str) -> str:
        """The queues that an API key has made, if it may make so many and no more: number -> queue."""
        return f"{self.prefix}:new-queues:{key_id}"

    def types(self) -> dict[str, str]:
        """The key and the type of each that is there once, whatever workers there are."""
        return {
            self.queues: "set",
            self.workers: "zset",
            self.control: "hash",
            self.batches: "zset",
            self.limits: "set",
            self.audit: "stream",
            self.secret: "string",
            self.logouts: "zset",
            FailedKeys(self.prefix).at: "zset",
            FailedKeys(self.prefix).rows: "hash",
        }
