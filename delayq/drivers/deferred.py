"""The connection that runs a job in this process once the web response under way is sent. The answer says when.

    [connections.later]
    driver = "deferred"             "deferred" itself needs no settings

As Laravel's, but a job is run whatever the status of the response. It may be lost with the process, so it is for small
things. Outside of a request, where nothing would ever run it, it is refused, and so is a delay.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from delayq.core.options import Options
from delayq.core.spec import Prepared
from delayq.core.views import Fate
from delayq.drivers.capabilities import Capabilities
from delayq.drivers.local import LocalConnection

CAPABILITIES: Final = Capabilities(serves=False, durable=False, chains=True)


class DeferredConnection(LocalConnection):
    """Hands each envelope to `keep`, which raises `ConfigError` where no response is under way."""

    can = CAPABILITIES

    def __init__(self, name: str, options: Options, keep: Callable[[bytes], None]) -> None:
        super().__init__(name, options)
        self._keep = keep

    def _take(self, job: Prepared) -> Fate:
        self._keep(job.envelope)
        return Fate.AFTER_RESPONSE

    async def _atake(self, job: Prepared) -> Fate:
        return self._take(job)
