"""Checks whether the settings of a Redis server keep jobs safe."""

import logging
from typing import Final

from delayq.core.errors import CallRefused, UnsafeSetup
from delayq.redis.calls.call import read
from delayq.redis.connection.executor import Executor
from delayq.redis.connection.leaf import drive

logger: Final = logging.getLogger("delayq.worker")


def refuse_eviction(executor: Executor) -> None:
    """Raise UnsafeSetup if the server evicts keys at its memory limit, because it could delete jobs, locks and tokens.

    If the policy cannot be read, for example because the Redis user may not run INFO, a warning is logged instead.
    """
    try:
        info = drive(executor.run(read("INFO", "memory", parse=_read_info)))
    except CallRefused as error:
        warn_unknown_policy(error.message)
        return
    policy = info.get("maxmemory_policy")
    if policy is None:
        warn_unknown_policy(f"INFO of Redis at {executor.where} does not contain maxmemory_policy.")
    elif policy != "noeviction":
        raise UnsafeSetup(
            f"Redis at {executor.where} evicts keys when its memory is full (maxmemory-policy {policy}), so jobs could "
            "be lost without an error.",
            hint="Set `maxmemory-policy noeviction`, or start with --allow-eviction.",
        )


def warn_unknown_policy(reason: str) -> None:
    """Log that the eviction policy of a server could not be read."""
    logger.warning(
        "the eviction policy is unknown: %s If Redis evicts keys when its memory is full, jobs are lost "
        "without an error. Allow INFO in the ACL of this user, or make sure that maxmemory-policy is noeviction and "
        "start with --allow-eviction.",
        reason,
    )


def _read_info(reply: bytes) -> dict[str, str]:
    lines = (line.partition(":") for line in reply.decode("utf-8", "replace").splitlines())
    return {name: value for name, colon, value in lines if colon}
