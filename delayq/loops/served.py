"""Which queues a loop looks after, shard by shard."""

from __future__ import annotations

from collections.abc import Sequence

from delayq.core.errors import AWAY, BackendError
from delayq.core.shards import all_shards
from delayq.drivers.base import Driver
from delayq.loops.troubles import Troubles


def served(
    driver: Driver, only: Sequence[str], before: Sequence[str], troubles: Troubles
) -> tuple[Sequence[str], bool]:
    """All that are known; of the queues `only`, when some are named, and then also those that nobody knows yet.

    And whether the list could be read. When it is damaged it keeps no named queue from being looked after, and when its
    node of a cluster is away, none: then it is those of `before`.
    """
    try:
        known = driver.queues()
    except BackendError as error:
        away = isinstance(error, AWAY)
        left = before or only
        if (away and not error.apart) or not left or (not away and not only):
            raise
        troubles.tell(error, "the list of queues")
        return left, False
    return (all_shards(only, known) if only else known), True
