"""The names of all keys and channels in Redis. All other modules take the names from here."""

from functools import cache
from typing import Final

from delayq.redis.scripts import Script

GROUP: Final = "delayq"

OF_BATCH: Final = "batch:"
"""How the hash tag of the keys of a batch begins. The id of the batch follows."""

OF_LIMIT: Final = "limit:"
"""How the hash tag of the keys of a limit begins. The name of the limit follows."""


class Keys:
    """The keys and channels with one prefix.

    These names exist once, and not per queue:

    * `queues`: a set of the names of all queues
    * `workers`: a sorted set of the names of the children of all live workers
    * `batches`: a sorted set of batches
    * `limits`: a set of the names of all limits
    * `control`: a hash with the pause, maintenance and restart switches
    * `wake`: a channel for new due times; its messages are `<queue> <due_ms>`
    * `cancel`: a channel for cancelled running jobs; its messages are `<queue> <id>`
    """

    def __init__(self, prefix: str = "delayq") -> None:
        self.queues = f"{prefix}:queues"
        self.control = f"{prefix}:control"
        self.workers = f"{prefix}:workers"
        self.batches = f"{prefix}:batches"
        self.limits = f"{prefix}:limits"
        self.wake = f"{prefix}:wake"
        self.cancel = f"{prefix}:cancel"
        self.prefix = prefix
        self.of_script = cache(self._of_script)

    def of_worker(self, name: str) -> str:
        """Return the key of the description of a child, which its supervisor writes."""
        return f"{self.prefix}:worker:{name}"

    def of_queue(self, queue: str, role: str) -> str:
        """Return one key of a queue. Its hash tag puts all keys of the queue in one slot of Redis Cluster."""
        return f"{self.prefix}:{{{queue}}}:{role}"

    def of_batch(self, batch_id: str, role: str) -> str:
        """Return one key of a batch. Its hash tag puts all keys of the batch in one slot of Redis Cluster."""
        return f"{self.prefix}:{{{OF_BATCH}{batch_id}}}:{role}"

    def of_limit(self, name: str, role: str) -> str:
        """Return one key of a limit. Its hash tag puts all keys of the limit in one slot of Redis Cluster."""
        return f"{self.prefix}:{{{OF_LIMIT}{name}}}:{role}"

    def _of_script(self, script: Script, queue: str) -> tuple[str, ...]:
        """Return the keys that the manual of a script declares, in the same order."""
        return tuple(self.of_queue(queue, role) for role in script.keys)
