"""The seal that all servers of a prefix share, so that a session outlives its server and holds on the next one."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import time
from typing import Final

from delayq.core.errors import BackendFull, BackendUnavailable, DelayqError
from delayq.http.seal import Seal
from delayq.redis.aio import AsyncClient
from delayq.redis.secret import shared_secret

LOG: Final = logging.getLogger("delayq.http.dashboard")
FRESH_S: Final = 10.0
"""After which it is asked for again: somebody may have emptied Redis meanwhile, and other servers made a new one."""
_SECRET_BYTES: Final = 32


class Seals:
    """Gets the secret from Redis; one that Redis has no room for stays in this process."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._mine = os.urandom(_SECRET_BYTES)
        self._secret = b""
        self._seal = Seal()
        self._until_s = 0.0
        self._looking: asyncio.Task[None] | None = None

    async def seal(self) -> Seal:
        """The seal. Raises `BackendError` when Redis is away and was never asked before.

        Later it is asked again beside the request: no page waits twice for a Redis that does not answer.
        """
        if not self._secret:
            await self._look()
        elif time.monotonic() >= self._until_s and (self._looking is None or self._looking.done()):
            self._looking = asyncio.create_task(self._look_again())
        return self._seal

    async def _look(self) -> None:
        try:
            secret = await self._client.run(shared_secret(self._client.verbs, self._mine)) or self._mine
        except (BackendFull, BackendUnavailable) as error:
            if isinstance(error, BackendUnavailable) and not error.refuses_writes:
                raise
            LOG.warning("Sessions end with this server: %s", error)
            secret = self._secret or self._mine
        if secret != self._secret:
            self._secret, self._seal = secret, Seal(hashlib.sha256(secret).digest())
        self._until_s = time.monotonic() + FRESH_S

    async def _look_again(self) -> None:
        try:
            await self._look()
        except DelayqError as error:  # the page says so itself
            LOG.info("The secret of sessions was not looked at again: %s", error)
