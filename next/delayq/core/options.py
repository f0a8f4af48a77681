"""Default options of a connection, and default values of worker settings.

Calls and declarations of jobs can override some of these options.
"""

import re
from typing import Final

import msgspec

from delayq.core.backoff import DEFAULT, Backoff
from delayq.core.display import shown
from delayq.core.encryption import KeyRing
from delayq.core.errors import InvalidInput

_REPLICAS: Final = re.compile(r"replicas:([1-9][0-9]?)")


class Durability(msgspec.Struct, frozen=True):
    """The confirmation that a producer waits for: an fsync, copies on this number of `replicas`, or neither."""

    replicas: int = 0
    fsync: bool = False

    @property
    def waits(self) -> bool:
        """True if a confirmation is required."""
        return self.fsync or self.replicas > 0


MEMORY: Final = Durability()


SHORTEST_LEASE_MS: Final = 100


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a connection. Durations are in milliseconds.

    * `queue`: the queue of jobs that name no queue.
    * `retention_ms`: how long completed jobs are kept; 0 = not at all.
    * `max_payload`: the largest payload, in bytes.
    * `lease_ms`: the lease of queues that this connection creates. An existing queue keeps its own lease.
    * `high_water`: the maximum number of ready and reserved jobs in a queue. Further due jobs stay scheduled.
    * `max_recoveries`: the maximum number of times that a job is redelivered because its worker vanished (died, or lost
      the lease). If a worker vanishes once more, the job fails.
    * `tidy_every_ms`: the interval between two clean-ups of the janitor.
    * `keep_failed_ms`: how long failed jobs are kept.
    * `keep_batches_ms`: how long a batch is kept after its end. A batch with failed members is kept as long as failed
      jobs.
    * `durability`: the confirmation that a producer waits for.
    * `tries`, `timeout_ms`, `backoff`: used if neither the dispatch nor the declaration of the job sets the value.
    * `encrypt`: True = encrypt jobs for which neither the call nor the declaration sets `encrypted`.
    * `key_ring`: the keys that encrypt and decrypt payloads and results; None = no keys.
    """

    queue: str = "default"
    retention_ms: int = 0
    max_payload: int = 256 * 1024
    lease_ms: int = 30_000
    high_water: int = 100_000
    max_recoveries: int = 3
    tidy_every_ms: int = 10_000
    keep_failed_ms: int = 90 * 86_400_000
    keep_batches_ms: int = 7 * 86_400_000
    durability: Durability = MEMORY
    tries: int = 5
    timeout_ms: int = 60_000
    backoff: Backoff = DEFAULT
    encrypt: bool = False
    key_ring: KeyRing | None = None


DEFAULTS: Final = Options()
"""The built-in defaults, which apply to missing settings."""

GRACE_MS: Final = 25_000
"""Default of the setting `grace`, in milliseconds."""

TIMEOUT_GRACE_MS: Final = 2_000
"""Default of the setting `timeout_grace`, in milliseconds."""


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
