"""The operators' switches: pauses of single queues, a pause of all queues, maintenance, and the request to restart.

Operators set these switches in Redis, and workers read them together with their jobs. Maintenance pauses all queues
too, but workers with `--force` ignore maintenance.

If the number of shards of a queue changes, the worker exits as after a request to restart, because it reads only the
shards that it knows. Its process manager starts the worker again.
"""

import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from delayq.backends.values import Switches
from delayq.core.errors import BackendError
from delayq.redis.calls.call import Call, read
from delayq.redis.calls.shards import shard_count
from delayq.redis.keys import Keys

logger: Final = logging.getLogger("delayq.worker")

_CONTROL: Final = ("paused_until_ms", "maintenance_until_ms", "restart_ms")
_OF_QUEUE: Final = ("paused_until_ms", "shards")
_NOTHING: Final = Switches()


class SwitchReader:
    """The switches, as they were last read.

    `shards`: by queue, the number of shards that the worker reads. `calls`: the calls that read the switches. If one of
    the calls fails, its previous value remains. `forced`: ignore maintenance.
    """

    def __init__(self, keys: Keys, shards: Mapping[str, int], *, forced: bool) -> None:
        self._shards = shards
        self._has_other_shards = False
        self._forced = forced
        self._paused_until: dict[str, int] = {}
        self._all_until: list[int] = []
        self._restart_ms = 0
        self.calls: list[Call[Any]] = [
            read("HMGET", keys.control, *_CONTROL, parse=list),
            *[read("HMGET", keys.of_queue(queue, "meta"), *_OF_QUEUE, parse=list) for queue in shards],
        ]

    def keep(self, outcomes: Sequence[Any]) -> None:
        """Store the outcomes of `calls`."""
        control, *of_queues = outcomes
        if not isinstance(control, BackendError):
            paused, maintenance, restart = (_number(value) for value in control)
            ends = [paused] if self._forced else [paused, maintenance]
            self._all_until = [end for end in ends if end is not None]
            self._restart_ms = restart or 0
        for queue, of_queue in zip(self._shards, of_queues, strict=True):
            if isinstance(of_queue, BackendError):
                continue
            paused_until, shards = of_queue
            until = _number(paused_until)
            if until is None:
                self._paused_until.pop(queue, None)
            else:
                self._paused_until[queue] = until
            if shards != b"1" or self._shards[queue] != 1:
                self._compare(queue, shard_count(shards))

    def _compare(self, queue: str, shards: int) -> None:
        if shards == self._shards[queue]:
            return
        if not self._has_other_shards:
            logger.warning(
                "the worker exits, so that its process manager starts it again: the number of shards of queue %s is "
                "now %d instead of %d",
                queue,
                shards,
                self._shards[queue],
            )
        self._has_other_shards = True

    def seconds_to_end(self, now_ms: int) -> float:
        """Return the seconds until the next pause ends by itself, or infinity."""
        ends = [until for until in (*self._paused_until.values(), *self._all_until) if until > now_ms]
        return (min(ends) - now_ms) / 1000 if ends else math.inf

    def at(self, now_ms: int) -> Switches:
        """Return the switches that are in force at this time. A pause whose end is 0 has no end.

        If a queue has another number of shards now, the time of the restart request is `now_ms`.
        """
        if not self._paused_until and not self._all_until and not self._restart_ms and not self._has_other_shards:
            return _NOTHING
        paused = frozenset(queue for queue, until in self._paused_until.items() if until == 0 or until > now_ms)
        is_all_paused = any(until == 0 or until > now_ms for until in self._all_until)
        return Switches(paused, is_all_paused, now_ms if self._has_other_shards else self._restart_ms)


def read_restart(keys: Keys) -> Call[int]:
    """Make the call that reads the time of the last restart request, in epoch ms; 0 = none."""
    return read("HGET", keys.control, "restart_ms", parse=lambda reply: _number(reply) or 0)


def _number(reply: bytes | None) -> int | None:
    """Return a time in epoch ms. Like the scripts, ignore a value that is not a number, and return None."""
    return int(reply) if reply is not None and reply.isdigit() and len(reply) <= 15 else None
