"""The source of a migration on Laravel's queues: payloads leave them by a script, into a hash beside each queue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from delayq.core.errors import BadEnvelope
from delayq.drivers.broker import Waiting
from delayq.drivers.laravel.payload import label, read_payload
from delayq.drivers.laravel.showing import LaravelLook
from delayq.drivers.migrating.ends import Stays
from delayq.redis.calls import laravel as calls
from delayq.redis.calls.call import Command
from delayq.redis.calls.laravel import SetAside, Shown
from delayq.redis.connect import Connector
from delayq.redis.laravel_keys import LaravelKeys
from delayq.redis.send import send, through

T = TypeVar("T")


@dataclass(slots=True)
class _Place:
    """How far a queue was walked through: which of its two parts, past how many that stay there.

    `moved`: this round moved something; workers who take the first ones meanwhile make it miss others.
    """

    role: str = "delayed"
    first: int = 0
    moved: bool = False

    def next(self) -> bool:
        """The other part, or another round; False when this round moved nothing."""
        again = self.role == "delayed" or self.moved
        if self.role == "list":
            self.moved = False
        self.role, self.first = ("list" if self.role == "delayed" else "delayed"), 0
        return again


class LaravelSource:
    """The source on one application's queues. PHP's workers may serve them meanwhile."""

    comes_back = False

    def __init__(self, connector: Connector, prefix: str, look: LaravelLook) -> None:
        self._connector = connector
        self._prefix = prefix
        self._look = look
        self._places: dict[str, _Place] = {}

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

    def set_aside(self, queue: str, lot: str, count: int, stays: Stays) -> int:
        """What waits for its time first: what is ready may be taken by a worker just as well."""
        place, keys = self._places.setdefault(queue, _Place()), self._keys(queue)
        while True:
            shown = self._shown(queue, place, count)
            going = [one for one, job in shown if not stays(job)]
            moved = through(self._connector, calls.set_aside(keys, lot, going)) if going else 0
            place.moved = place.moved or moved > 0
            place.first += len(shown) - moved
            if not shown and not place.next():
                return 0
            if moved:
                return moved

    def _shown(self, queue: str, place: _Place, count: int) -> list[tuple[Shown, Waiting]]:
        """As many as one call can carry."""
        keys, now_ms = self._keys(queue), self._look.server_ms()
        scored: list[tuple[bytes, float | None]]
        if place.role == "delayed":
            scored = [*self._ask(calls.delayed(keys, "-inf", place.first, count))]
        else:
            scored = [(payload, None) for payload in self._ask(calls.ready(keys, place.first, count))]
        some = next(calls.split(scored, lambda one: len(one[0])), [])
        return [
            (Shown(place.role, payload), _waiting(queue, SetAside("", 0, _due_ms(due), payload), now_ms))
            for payload, due in some
        ]

    def lot(self, queue: str, lot: str) -> list[Waiting]:
        """In the order in which they were taken."""
        now_ms = self._look.server_ms()
        return [_waiting(queue, one, now_ms) for one in self._aside(queue) if one.lot == lot]

    def drop(self, queue: str, lot: str, jobs: Sequence[Waiting]) -> Sequence[str]:
        """Out of the hash."""
        if jobs:
            self._ask(calls.drop(self._keys(queue), [job.entry for job in jobs]))
        return ()

    def put_back(self, queue: str, lot: str, jobs: Sequence[Waiting]) -> Mapping[str, str]:
        """Each where it was, at the end."""
        through(self._connector, calls.put_back(self._keys(queue), [job.entry for job in jobs]))
        return {}

    def let_go(self, queue: str) -> None:
        """Nothing is held."""

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


def _due_ms(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds * 1000)


def _waiting(queue: str, one: SetAside, now_ms: int) -> Waiting:
    """What cannot be read is shown as it is, and with the reason."""
    due_ms = now_ms if one.due_ms is None else one.due_ms
    try:
        payload = read_payload(one.payload)
        envelope = payload.envelope(queue=queue, attempts=payload.attempts or 0)
    except BadEnvelope as error:
        return Waiting(label(one.payload)[0], queue, one.field, one.payload, due_ms, unreadable=str(error))
    return Waiting(payload.id, queue, one.field, envelope, due_ms)
