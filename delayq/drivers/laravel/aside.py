"""The source of a migration on Laravel's queues: payloads leave them by a script, into a hash beside each queue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from delayq.core.errors import BadEnvelope
from delayq.drivers.broker import Waiting
from delayq.drivers.laravel.payload import label, read_payload
from delayq.drivers.laravel.showing import LaravelLook
from delayq.redis.calls import laravel as calls
from delayq.redis.calls.call import Command
from delayq.redis.calls.laravel import SetAside
from delayq.redis.connect import Connector
from delayq.redis.laravel_keys import LaravelKeys
from delayq.redis.send import send, through

T = TypeVar("T")


class LaravelSource:
    """The source on one application's queues. PHP's workers may serve them meanwhile."""

    def __init__(self, connector: Connector, prefix: str, look: LaravelLook) -> None:
        self._connector = connector
        self._prefix = prefix
        self._look = look

    def queues(self) -> list[str]:
        """Those that hold anything."""
        return self._look.queues()

    def waiting(self, queue: str) -> int:
        """What is ready, and what waits for its time."""
        depth = self._look.depth(queue)
        return depth.ready + (depth.delayed or 0)

    def lots(self, queue: str) -> list[str]:
        """By what the hash holds."""
        return list(dict.fromkeys(one.lot for one in self._aside(queue)))

    def set_aside(self, queue: str, lot: str, count: int) -> int:
        """One script call."""
        return through(self._connector, calls.set_aside(self._keys(queue), lot, count))

    def lot(self, queue: str, lot: str) -> list[Waiting]:
        """In the order in which they were taken."""
        now_ms = self._look.server_ms()
        return [_waiting(queue, one, now_ms) for one in self._aside(queue) if one.lot == lot]

    def drop(self, queue: str, lot: str, jobs: Sequence[Waiting]) -> Sequence[str]:
        """Out of the hash."""
        if jobs:
            self._ask(calls.drop(self._keys(queue), [job.entry for job in jobs]))
        return ()

    def put_back(self, queue: str, lot: str) -> int:
        """Each where it was, at the end."""
        fields = [one.field for one in self._aside(queue) if one.lot == lot]
        return through(self._connector, calls.put_back(self._keys(queue), fields)) if fields else 0

    def staying(self, queue: str) -> str:
        """All that wait can leave."""
        return ""

    def close(self) -> None:
        """Close the connections."""
        self._connector.close()

    def _keys(self, queue: str) -> LaravelKeys:
        return LaravelKeys(self._prefix, queue)

    def _aside(self, queue: str) -> list[SetAside]:
        return self._ask(calls.aside(self._keys(queue)))

    def _ask(self, command: Command[T]) -> T:
        return self._connector.call(lambda client: send(client, command), safe=True, reads=command.reads)


def _waiting(queue: str, one: SetAside, now_ms: int) -> Waiting:
    """What cannot be read is shown as it is; no target takes it, so it is put back."""
    due_ms = now_ms if one.due_ms is None else one.due_ms
    try:
        payload = read_payload(one.payload)
        envelope = payload.envelope(queue=queue, attempts=payload.attempts or 0)
    except BadEnvelope:
        return Waiting(label(one.payload)[0], queue, one.field, one.payload, due_ms)
    return Waiting(payload.id, queue, one.field, envelope, due_ms)
