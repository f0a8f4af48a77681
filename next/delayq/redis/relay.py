"""Relays the outbox of a queue, which has a record of each ended job that may have follow-up jobs.

This release has no chains or batches yet. A record whose job belongs to a chain or a batch stays in the outbox for a
later release. Other records are removed. They exist because scripts only search the text of an envelope, and this
search also finds similar texts.
"""

from typing import Final

from delayq.core import envelope as envelopes
from delayq.core.errors import UnreadableEnvelope
from delayq.redis.calls import upkeep as calls
from delayq.redis.calls.upkeep import FollowUp
from delayq.redis.connection.executor import Executor
from delayq.redis.keys import Keys

CLAIM_MS: Final = 5_000
"""How long an outbox is reserved for the relay that has read it."""


async def relay_outbox(executor: Executor, keys: Keys, queue: str, *, name: str) -> int:
    """Relay the records in the outbox of a queue, and return their number."""
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
    """Return True if the job may have follow-up jobs.

    An unreadable record counts too, because a later release may read it.
    """
    try:
        return envelopes.decode(row.envelope).is_followed
    except UnreadableEnvelope:
        return True
