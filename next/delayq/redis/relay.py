"""Follow-ups of jobs that have ended, sent from the outbox of a queue.

Chains and batches come with a later part. Until then a row whose job has one stays in the outbox; a row whose text only
looked like it is taken out.
"""

from typing import Final

from delayq.core import envelope as envelopes
from delayq.core.errors import UnreadableEnvelope
from delayq.redis.calls import upkeep as calls
from delayq.redis.calls.upkeep import FollowUp
from delayq.redis.connection.executor import Executor
from delayq.redis.keys import Keys

CLAIM_MS: Final = 5_000
"""How long an outbox belongs to the relay that has read it."""


async def relay_outbox(executor: Executor, keys: Keys, queue: str, *, name: str) -> int:
    """Relay what the outbox of a queue holds, and return how many rows that were."""
    relayed = 0
    after = calls.FROM_START
    while True:
        page = await executor.run(calls.read_outbox(keys, queue, relay=name, hold_ms=CLAIM_MS, after=after))
        done = [row.entry for row in page.rows if not _is_followed(row)]
        if done:
            relayed += await executor.run(calls.ack_outbox(keys, queue, done))
        if not page.is_more:
            return relayed
        after = page.rows[-1].entry


def _is_followed(row: FollowUp) -> bool:
    """Whether anything follows. A row that cannot be read is left for a release that can."""
    try:
        return envelopes.decode(row.envelope).is_followed
    except UnreadableEnvelope:
        return True
