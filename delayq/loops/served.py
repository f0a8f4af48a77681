"""Which queues a loop looks after, shard by shard."""

from __future__ import annotations

from collections.abc import Sequence

from delayq.core.errors import AWAY, BackendError
from delayq.core.shards import all_shards
from delayq.drivers.base import Driver
from delayq.loops.troubles import Troubles


def served(driver: Driver, only: Sequence[str], before: Sequence[str], troubles: Troubles) -> Sequence[str]:
    """All that are known; of the queues `only`, when some are named, and then also those that nobody knows yet.

    Names that cannot be read keep no named queue from being looked after: then it is those of `before`.
    """
    if not only:
        return driver.queues()
    try:
        return all_shards(only, driver.queues())
    except AWAY:
        raise
    except BackendError as error:
        troubles.tell(error, "names of queues")
        return before or only
