"""Checks whether the settings of a Redis server keep jobs safe."""

from delayq.core.errors import CallRefused, UnsafeSetup
from delayq.redis.calls.call import read
from delayq.redis.connection.executor import Executor
from delayq.redis.connection.leaf import drive


def refuse_eviction(executor: Executor) -> None:
    """Raise UnsafeSetup if the server evicts keys at its memory limit, because it could delete jobs, locks and tokens.

    If the Redis user may not run INFO, the check is skipped.
    """
    try:
        info = drive(executor.run(read("INFO", "memory", parse=_read_info)))
    except CallRefused:
        return
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        raise UnsafeSetup(
            f"Redis at {executor.where} evicts keys when its memory is full (maxmemory-policy {policy}), so jobs could "
            "be lost without an error.",
            hint="Set `maxmemory-policy noeviction`, or start with --allow-eviction.",
        )


def _read_info(reply: bytes) -> dict[str, str]:
    lines = (line.partition(":") for line in reply.decode("utf-8", "replace").splitlines())
    return {name: value for name, colon, value in lines if colon}
