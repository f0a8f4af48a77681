"""The names of all keys and channels. Nothing else spells one."""

from functools import cache
from typing import Final

from delayq.redis.scripts import Script

GROUP: Final = "delayq"


class Keys:
    """The keys and channels below one prefix.

    Of all queues: the set `queues`, the sorted set `workers`, the hash `control`, and the channels `wake`
    (`<queue> <due_ms>`) and `cancel` (`<queue> <id>`).
    """

    def __init__(self, prefix: str = "delayq") -> None:
        self.queues = f"{prefix}:queues"
        self.control = f"{prefix}:control"
        self.workers = f"{prefix}:workers"
        self.wake = f"{prefix}:wake"
        self.cancel = f"{prefix}:cancel"
        self.prefix = prefix
        self.of_script = cache(self._of_script)

    def of_worker(self, name: str) -> str:
        """Return the key under which a worker says what it is and does."""
        return f"{self.prefix}:worker:{name}"

    def of_queue(self, queue: str, role: str) -> str:
        """Return one key of a queue. The hash tag keeps all keys of a queue in one Cluster slot."""
        return f"{self.prefix}:{{{queue}}}:{role}"

    def _of_script(self, script: Script, queue: str) -> tuple[str, ...]:
        """Return the keys that a script declares, in its order."""
        return tuple(self.of_queue(queue, role) for role in script.keys)
