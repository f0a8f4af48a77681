"""What the answer of a receiver means for a job.

2xx                              done
429, 503 with Retry-After        snoozed until then; costs no attempt
410                              discarded: nobody wants it any more
429 and 5xx otherwise            tried again, by the job's backoff
other 4xx, 3xx                   failed: the same request would be answered the same way
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from delayq.core.errors import NotDelivered
from delayq.core.signals import Discard, Fail, Snooze
from delayq.jobs.notifications.retry_after import retry_after_s
from delayq.jobs.notifications.webhook_post import Reply

SHORTEST_S: Final = 1.0
LONGEST_S: Final = 86_400.0
"""A receiver may ask for less or more; it gets this."""
_ASKS_FOR_TIME: Final = (429, 503)


def verdict(host: str, reply: Reply, now_s: float) -> Exception | None:
    """What to raise for an answer; None = it has been taken. `now_s` is the epoch."""
    status = reply.status
    if 200 <= status < 300:
        return None
    told = f": {reply.told!r}" if reply.told else ""
    error = NotDelivered(f"The push to {host} was answered with {status}{told}.")
    if status in _ASKS_FOR_TIME:
        wait_s = retry_after_s(reply.retry_after, now_s)
        if wait_s is not None:
            span = timedelta(seconds=min(max(wait_s, SHORTEST_S), LONGEST_S))
            return Snooze(span, reason=str(error))
    if status == 410:
        return Discard(str(error))
    if 300 <= status < 500 and status not in _ASKS_FOR_TIME:
        return Fail(error)
    return error
