"""The connection that drops every job, for places where no work should be done. The answer says `dropped`."""

from __future__ import annotations

from typing import Final

from delayq.core.spec import Prepared
from delayq.core.views import Fate
from delayq.drivers.capabilities import Capabilities
from delayq.drivers.local import LocalConnection

CAPABILITIES: Final = Capabilities(serves=False, durable=False)


class NullConnection(LocalConnection):
    """Checks a job and forgets it."""

    def _take(self, job: Prepared) -> Fate:
        return Fate.DROPPED

    async def _atake(self, job: Prepared) -> Fate:
        return Fate.DROPPED
