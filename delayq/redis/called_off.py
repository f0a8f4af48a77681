"""Whether a member of a batch may start. A generator like those of `verbs`, which it is given.

A cancel holds for all members there are, and for the links that come after them. A retry of one that failed lifts the
cancels its caller knew of: for itself and what comes after it at once, even before the batch has heard of the retry;
for others as soon as that has heard, unless they had been skipped by then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from delayq.redis.calls.call import Command, whole
from delayq.redis.keys import Keys

if TYPE_CHECKING:
    from delayq.redis.verbs import Flow, Verbs


def called_off(verbs: Verbs, batch: str, member: str, spared: int) -> Flow[bool]:
    """Whether nothing of it starts any more; so many cancels do not hold for it."""
    keys = Keys(verbs.options.prefix, f"batch:{batch}")
    holds: bool | None = yield Command(in_force(keys), lambda reply: holding(reply, spared), True)
    if holds is not None:
        return holds
    waits: bool = yield Command(("HEXISTS", keys.of("pending"), member), bool, True)
    return not waits


def in_force(keys: Keys) -> tuple[str, ...]:
    """The command that asks after a batch's cancels."""
    return ("HMGET", keys.of("plan"), "cancels", "cancelled_ms")


def holding(reply: Sequence[bytes | None], spared: int) -> bool | None:
    """Whether a cancel holds for a member; None: one was lifted, and only those that were skipped by then are meant."""
    cancels, since = reply
    if (whole(cancels) or 0) <= spared:
        return False
    return True if since is not None else None
