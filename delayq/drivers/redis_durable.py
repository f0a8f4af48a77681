"""What a worker's settling waits for: on queues whose durability says so, and nothing on all others.

A short answer changes nothing for the job, which is settled; after a failover it may be back and run again, as every
job may. So it is told in the log, now and then, and nowhere else.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from delayq.core.durability import MEMORY, Durability
from delayq.core.errors import ConfigError
from delayq.core.names import new_id
from delayq.core.options import Options
from delayq.core.shards import queue_of
from delayq.redis import presence
from delayq.redis.calls.call import Call
from delayq.redis.confirm import Confirm
from delayq.redis.connect import Connector
from delayq.redis.keys import Keys

log = logging.getLogger("delayq.worker")

LOOK_S = 2.0
"""How often it looks what the queues ask for, while there is anything to settle."""
TELL_S = 10.0


class DurableSettling:
    """For one consumer of these queues."""

    def __init__(self, connector: Connector, options: Options, queues: Sequence[str]) -> None:
        self._connector = connector
        self._options = options
        self._queues = tuple(queues)
        self._wanted: dict[str, Durability] = {}
        self._probed: dict[tuple[str, Durability], bool] = {}
        self._looked = self._told = float("-inf")
        self._short = 0

    def wanted(self, queue: str) -> Durability | None:
        """What settling waits for on that queue; None for nothing. Asks the server now and then."""
        now = time.monotonic()
        if now - self._looked >= LOOK_S:
            read = partial(presence.durabilities, self._options.prefix, self._queues, self._options.durability)
            self._wanted = self._connector.call(read, safe=True, reads=True)
            self._looked = now
        return self._wanted.get(queue_of(queue))

    def settle(self, call: Call[Any], queue: str, wanted: Durability, *, again: bool) -> Any:
        """The answer of a call that settles, once it is that safe; `again`: sent once more after a lost reply.

        A server that cannot tell is told of like a short answer, and the job is settled all the same: it was done.
        """
        known = self._probed.get((queue, wanted))
        mark = Keys(self._options.prefix, queue).once(new_id())
        step = Confirm((call,), wanted, mark, any, probed=known is not None, again=again)
        if known is False:
            step = replace(step, durability=MEMORY)
        try:
            confirmed = self._connector.confirm(step)
        except ConfigError as error:  # of the probe, before anything was written; or of the call, which says so again
            self._tell(queue, wanted, error.message.rstrip("."))
            confirmed, known = self._connector.confirm(replace(step, durability=MEMORY)), False
        self._probed[queue, wanted] = known is not False
        if confirmed.missing:
            self._tell(queue, wanted, confirmed.missing)
        return confirmed.answers[0]

    def _tell(self, queue: str, wanted: Durability, missing: str) -> None:
        self._short += 1
        if time.monotonic() - self._told < TELL_S:
            return
        log.warning(
            "settled in queue %s, but durability %s was not confirmed: %s (%d such since the last line)",
            queue,
            wanted,
            missing,
            self._short,
        )
        self._told, self._short = time.monotonic(), 0
