"""What all servers of a prefix share about sessions: the key that signs them, and which of them have logged out."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import time
from typing import Final

from delayq.core.errors import BackendError, BackendFull, BackendUnavailable, DelayqError
from delayq.http.seal import Seal
from delayq.redis.aio import AsyncClient
from delayq.redis.secret import log_out, logged_out, shared_secret

LOG: Final = logging.getLogger("delayq.http.dashboard")
FRESH_S: Final = 1.0
"""A log-out on another server, or a new key after Redis was emptied, is known after so long."""
PATIENCE_S: Final = 1.0
"""How long a request waits for that; a Redis that does not answer is reported by the page itself."""
_SECRET_BYTES: Final = 32


class Seals:
    """Reads both from Redis; a key that Redis has no room for stays in this process."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._mine = os.urandom(_SECRET_BYTES)
        self._secret = b""
        self._seal = Seal()
        self._logged_out: frozenset[str] = frozenset()
        self._logged_out_here: frozenset[str] = frozenset()
        self._until_s = 0.0
        self._looking: asyncio.Task[None] | None = None

    async def seal(self) -> Seal:
        """Return the seal. Raises `BackendError` when Redis is away and was never asked before."""
        if not self._secret:
            await self._look()
        elif time.monotonic() >= self._until_s:
            if self._looking is None or self._looking.done():
                self._looking = asyncio.create_task(self._look_again())
            await asyncio.wait([self._looking], timeout=PATIENCE_S)
        return self._seal

    def is_logged_out(self, session: str) -> bool:
        """Say whether that session has logged out, as known since the last `seal()`."""
        return session in self._logged_out or session in self._logged_out_here

    async def log_out(self, session: str, until_s: int) -> None:
        """End a session on all servers; `until_s` (Unix time) is when its cookie ends anyway."""
        self._logged_out_here |= {session}
        try:
            await self._client.run(log_out(self._client.verbs, session, until_s, int(time.time())))
        except BackendError as error:
            LOG.warning("A session has logged out on this server alone: %s", error)

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
        self._logged_out = frozenset(await self._client.run(logged_out(self._client.verbs)))
        self._until_s = time.monotonic() + FRESH_S

    async def _look_again(self) -> None:
        try:
            await self._look()
        except DelayqError as error:  # the page says so itself
            LOG.info("The sessions' key and log-outs were not read again: %s", error)
