"""The operators' switches: pauses of single queues, a pause of all queues, maintenance, and the request to restart.

Operators set these switches in Redis, and workers read them together with their jobs. Maintenance pauses all queues
too, but workers with `--force` ignore it.
"""

import math
from collections.abc import Sequence
from typing import Any, Final

from delayq.backends.values import Switches
from delayq.core.errors import BackendError
from delayq.redis.calls.call import Call, read
from delayq.redis.keys import Keys

_CONTROL: Final = ("paused_until_ms", "maintenance_until_ms", "restart_ms")
_NOTHING: Final = Switches()


class SwitchReader:
    """The switches, as they were last read.

    `calls`: the calls that read the switches. If one of the calls fails, its previous value remains. `forced`: ignore
    maintenance.
    """

    def __init__(self, keys: Keys, queues: Sequence[str], *, forced: bool) -> None:
        self._queues = queues
        self._forced = forced
        self._paused_until: dict[str, int] = {}
        self._all_until: list[int] = []
        self._restart_ms = 0
        self.calls: list[Call[Any]] = [
            read("HMGET", keys.control, *_CONTROL, parse=list),
            *[read("HGET", keys.of_queue(queue, "meta"), "paused_until_ms", parse=_number) for queue in queues],
        ]

    def keep(self, outcomes: Sequence[Any]) -> None:
        """Store the outcomes of `calls`."""
        control, *pauses = outcomes
        if not isinstance(control, BackendError):
            paused, maintenance, restart = (_number(value) for value in control)
            ends = [paused] if self._forced else [paused, maintenance]
            self._all_until = [end for end in ends if end is not None]
            self._restart_ms = restart or 0
        for queue, until in zip(self._queues, pauses, strict=True):
            if until is None:
                self._paused_until.pop(queue, None)
            elif not isinstance(until, BackendError):
                self._paused_until[queue] = until

    def seconds_to_end(self, now_ms: int) -> float:
        """Return the seconds until the next pause ends by itself, or infinity."""
        ends = [until for until in (*self._paused_until.values(), *self._all_until) if until > now_ms]
        return (min(ends) - now_ms) / 1000 if ends else math.inf

    def at(self, now_ms: int) -> Switches:
        """Return the switches that are in force at this time. A pause whose end is 0 has no end."""
        if not self._paused_until and not self._all_until and not self._restart_ms:
            return _NOTHING
        paused = frozenset(queue for queue, until in self._paused_until.items() if until == 0 or until > now_ms)
        is_all_paused = any(until == 0 or until > now_ms for until in self._all_until)
        return Switches(paused, is_all_paused, self._restart_ms)


def read_restart(keys: Keys) -> Call[int]:
    """Make the call that reads the time of the last restart request, in epoch ms; 0 = none."""
    return read("HGET", keys.control, "restart_ms", parse=lambda reply: _number(reply) or 0)


def _number(reply: bytes | None) -> int | None:
    """Return a time in epoch ms. Like the scripts, ignore a value that is not a number, and return None."""
    return int(reply) if reply is not None and reply.isdigit() and len(reply) <= 15 else None
