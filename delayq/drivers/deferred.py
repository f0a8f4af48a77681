"""The connection that runs a job in this process once the web response under way is sent. The answer says when.

    [connections.later]
    driver = "deferred"             "deferred" itself needs no settings

As Laravel's, but a job is run whatever the status of the response. It may be lost with the process, so it is for small
things. Outside of a request, where nothing would ever run it, it is refused, and so is a delay.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

from delayq.core.errors import ConfigError
from delayq.core.spec import Prepared
from delayq.core.views import Fate
from delayq.drivers.capabilities import Capabilities
from delayq.drivers.local import LocalConnection

CAPABILITIES: Final = Capabilities(serves=False, durable=False, chains=True)

kept_jobs: ContextVar[list[bytes]] = ContextVar("delayq_after_response")
"""The envelopes to run after the response under way; without a value outside of a request."""


def defer(envelope: bytes) -> None:
    """Keep a job until the response under way is sent. Raises `ConfigError` when none is."""
    kept = kept_jobs.get(None)
    if kept is None:
        raise ConfigError(
            "No response is under way, so no job can run after it.",
            hint="Wrap the application in AfterResponse (ASGI) or AfterResponseWSGI, or use dispatch.",
        )
    kept.append(envelope)


class DeferredConnection(LocalConnection):
    """Keeps each envelope until the response is sent. Raises `ConfigError` when no response is under way."""

    can = CAPABILITIES

    def _take(self, job: Prepared) -> Fate:
        defer(job.envelope)
        return Fate.AFTER_RESPONSE

    async def _atake(self, job: Prepared) -> Fate:
        return self._take(job)
