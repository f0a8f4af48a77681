"""Carries what the outbox of a queue holds, for the relay of a worker or a mover."""

from __future__ import annotations

from delayq.drivers.base import Relayed
from delayq.redis.client import Client
from delayq.redis.relaying import Relaying


class RedisRelay:
    """A relay over `client`'s connections."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._relaying = Relaying(client.verbs)

    def relay(self, queue: str) -> Relayed:
        """Carry all that can be carried now, oldest first. Raises when Redis is away; what was carried stays so."""
        return Relayed(*self._client.run(self._relaying.relay(queue)))
