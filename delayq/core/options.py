"""What the engine needs to know, as one plain value: settings without where they came from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from delayq.core.backoff import DEFAULT, Backoff
from delayq.core.durability import MEMORY, Durability
from delayq.core.errors import InvalidInput
from delayq.core.keyring import NO_KEYS, Keyring, encrypts
from delayq.core.routes import Routes, find

MOST_ENVELOPE: Final = 16 * 1024 * 1024
"""Beside the payload's own limit; see `Options.max_envelope`."""


@dataclass(frozen=True, slots=True)
class Options:
    """Defaults of the engine. Durations are milliseconds, sizes bytes.

    `lease_ms` counts for a queue seen for the first time; later the queue's own value does. `routes` maps name
    patterns ('order.*') to queues for jobs scheduled without one; the first match in order wins. `forwards` renames
    queues: what is sent to the one goes to the other. `connection` is the name of the connection these belong to.
    `encrypt` holds name patterns of jobs whose payload is encrypted unless they say otherwise, with the first key of
    `keyring`. What does not travel (`travels`) stays in this process, and is never encrypted. `durability` is what is
    waited for on queues that keep none of their own.
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
    routes: Routes = field(default_factory=dict)
    forwards: Mapping[str, str] = field(default_factory=dict)
    connection: str = "default"
    keyring: Keyring = NO_KEYS
    encrypt: Sequence[str] = ()
    travels: bool = True
    durability: Durability = MEMORY

    @property
    def max_envelope(self) -> int:
        """Largest envelope in bytes: what a worker reads, and so what is sent. Room for a chain, headers, a seal."""
        return MOST_ENVELOPE + 2 * self.max_payload

    def queue_for(self, name: str) -> str:
        """The queue a job goes to when its producer names none."""
        route = find(self.routes, name)
        if route.connection not in (None, self.connection):
            raise InvalidInput(
                f"The job {name!r} is routed to the connection {route.connection!r}, and this is {self.connection!r}.",
                hint="Dispatch it through the manager, or name its queue.",
            )
        return route.queue or self.queue

    def encrypts(self, name: str, said: bool | None) -> bool:
        """Whether the payload of a job is encrypted, where its producer or its class `said` so, or not, or nothing."""
        return self.travels and (encrypts(self.encrypt, name) if said is None else said)

    def sent_to(self, queue: str) -> str:
        """Where a job for that queue really goes."""
        return self.forwards.get(queue, queue)
