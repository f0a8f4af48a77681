"""What is called about the locks of unique keys, besides the scripts that take and free them with their jobs."""

from __future__ import annotations

from collections.abc import Sequence

from delayq.core.limiting import Unlocked
from delayq.redis.calls.call import Call, Scope, call, text


def unlock(scope: Scope, job_id: str, digest: str, entry: str = "") -> Call[Unlocked]:
    """Free a lock if it is still this job's; with `entry`, only for that delivery of it."""
    return call("unlock", scope, [job_id, entry, digest], lambda reply: Unlocked(text(reply)))


def sweep(scope: Scope, windows: Sequence[str]) -> Call[int]:
    """Drop windows that are over; how many were. At most 500 a call."""
    return call("sweep", scope, [scope.now, *windows], int)
