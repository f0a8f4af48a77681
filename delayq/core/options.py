"""What the engine needs to know, as one plain value: settings without where they came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from delayq.core.backoff import DEFAULT, Backoff


@dataclass(frozen=True, slots=True)
class Options:
    """Defaults of the engine. Durations are milliseconds, sizes bytes.

    `lease_ms` counts for a queue seen for the first time; later the queue's own value does. `routes` maps name
    patterns ('order.*') to queues for jobs scheduled without one; the first match in order wins.
    """

    prefix: str = "delayq"
    queue: str = "default"
    lease_ms: int = 30_000
    tidy_every_ms: int = 10_000
    max_recoveries: int = 3
    tries: int = 5
    backoff: Backoff = DEFAULT
    retention_ms: int = 0
    max_payload: int = 256 * 1024
    high_water: int = 100_000
    keep_failed_ms: int = 90 * 86_400_000
    routes: Mapping[str, str] = field(default_factory=dict)

    def queue_for(self, name: str) -> str:
        """The queue a job goes to when its producer names none."""
        for pattern, queue in self.routes.items():
            if fnmatchcase(name, pattern):
                return queue
        return self.queue
