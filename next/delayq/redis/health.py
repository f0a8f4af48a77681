"""Facts about a server that decide whether jobs are safe on it."""

from delayq.core.errors import CallRefused, UnsafeSetup
from delayq.redis.calls.call import read
from delayq.redis.connection.executor import Executor
from delayq.redis.connection.leaf import drive


def refuse_eviction(executor: Executor) -> None:
    """Raise UnsafeSetup when the server evicts keys at its memory limit: it would drop jobs, locks and tokens.

    A user that may not ask is let through.
    """
    try:
        info = drive(executor.run(read("INFO", "memory", parse=_read_info)))
    except CallRefused:
        return
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        raise UnsafeSetup(
            f"Redis at {executor.where} evicts keys when its memory is full (maxmemory-policy {policy}): jobs would be "
            "lost without a word.",
            hint="Set `maxmemory-policy noeviction`, or start with --allow-eviction.",
        )


def _read_info(reply: bytes) -> dict[str, str]:
    lines = (line.partition(":") for line in reply.decode("utf-8", "replace").splitlines())
    return {name: value for name, colon, value in lines if colon}
