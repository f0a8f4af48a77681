"""Relays the outboxes of queues: reads the records of ended jobs, and sends the jobs that follow the ended jobs.

The process of the relay can die between any two calls. So a record stays in the outbox until all its consequences are
carried out, and each step may be repeated: notes for batches are idempotent, and each new job has a token, so that the
job is stored once, even if it is sent twice.
"""

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from delayq.backends.values import Relayed
from delayq.core.errors import UnreadableEnvelope
from delayq.core.follow_up import follow_ups, follow_ups_of_unreadable
from delayq.core.options import Options
from delayq.core.shards import queue_of
from delayq.redis.batch_duties import BatchDuties
from delayq.redis.calls import upkeep as calls
from delayq.redis.calls.call import Call, value_of
from delayq.redis.calls.upkeep import FollowUp
from delayq.redis.connection.executor import Executor
from delayq.redis.follow_up_sender import FollowUpSender, Step
from delayq.redis.keys import Keys
from delayq.redis.shard_counts import ShardCounts

logger: Final = logging.getLogger("delayq.loops")

CLAIM_MS: Final = 2_000
"""How long an outbox is reserved for the relay that has read it."""

HELD_WAIT: Final = 1.0
"""Seconds until the next try if another relay has reserved the outbox. The other relay may have died.

A relay ends its reservation after each page. Otherwise the first relay of a new worker would have to wait for the
reservation of a worker that has just ended.
"""


WAIT_AFTER_ERROR: Final = 1.0
"""Seconds until a record is tried again after an error."""


SHORTEST_WAIT: Final = 0.001
"""Shortest time until waiting records are tried again, in seconds. It is above 0, because 0 means that the next page
can be relayed at once."""


class Waiting(msgspec.Struct, frozen=True):
    """Waiting records in the outbox of a queue: they must be tried again later, for example after an error.

    * `last`: id of the last record that was read.
    * `again_at`: the time (by the clock of the relay) at which the waiting records must be tried again.
    * `is_more`: True = there are records after `last` that have not been read yet.

    The next page begins after `last` while `is_more` is True or `again_at` has not passed, and otherwise at the start
    of the outbox.
    """

    last: str
    again_at: float
    is_more: bool


def time_of_record(entry: str) -> int:
    """Return the time of a record, in epoch ms: the time at which its job ended."""
    return int(entry.partition("-")[0])


class OutboxRelay:
    """Relays outboxes.

    `name`: the consumer name of this relay, under which it reserves outboxes. `ended_ms`: returns the time at which a
    job ended, in epoch ms, from the id of its record.
    """

    def __init__(
        self,
        executor: Executor,
        keys: Keys,
        options: Options,
        counts: ShardCounts,
        *,
        name: str,
        clock: Callable[[], float] = time.monotonic,
        ended_ms: Callable[[str], int] = time_of_record,
    ) -> None:
        self._executor = executor
        self._ended_ms = ended_ms
        self._keys = keys
        self._name = name
        self._clock = clock
        self._waiting: dict[str, Waiting] = {}
        self._sender = FollowUpSender(executor, keys, options, counts)
        self._batches = BatchDuties(executor, keys, options, counts)

    async def relay(self, queue: str) -> Relayed:
        """Relay one page of the records of a queue: new records, or all records if waiting records must be tried again.

        A waiting record does not delay the other records. A record with an error waits too, and the result contains the
        first error of the page. The next call goes on with the next page. An error of the whole page is raised.
        """
        waiting = self._waiting.pop(queue, None)
        goes_on = waiting is not None and (waiting.is_more or self._clock() < waiting.again_at)
        after = waiting.last if waiting is not None and goes_on else calls.FROM_START
        left = waiting if goes_on else None
        reserved_until = self._clock() + CLAIM_MS / 1000
        page = await self._executor.run(
            calls.read_outbox(self._keys, queue, relay=self._name, hold_ms=CLAIM_MS, after=after)
        )
        if page.is_held:
            if left is not None:
                self._waiting[queue] = left
            return Relayed(0, HELD_WAIT)
        steps = [self._step(row, queue) for row in page.rows]
        relayed = 0
        if steps:
            relayed = await self._carry_out(queue, steps, reserved_until)
            left = self._waiting_after(steps, left, is_more=page.is_more)
        elif left is not None:  # another relay may have carried out the records that came next
            left = msgspec.structs.replace(left, is_more=page.is_more)
            await self._executor.run(calls.release_outbox(self._keys, queue))
        if left is not None:
            self._waiting[queue] = left
        error = next((step.error for step in steps if step.error is not None), None)
        if page.is_more or any(step.again_in == 0.0 for step in steps):
            return Relayed(relayed, 0.0, error)
        return Relayed(relayed, None if left is None else max(left.again_at - self._clock(), SHORTEST_WAIT), error)

    def _waiting_after(self, steps: Sequence[Step], before: Waiting | None, *, is_more: bool) -> Waiting | None:
        """Return the waiting records of these steps, together with the records that were waiting before.

        A record with an error waits too. None = no record waits.
        """
        waits = [WAIT_AFTER_ERROR if step.error is not None else step.again_in for step in steps]
        times = [self._clock() + wait for wait in waits if wait is not None]
        if before is not None:
            times.append(before.again_at)
        return Waiting(steps[-1].entry, min(times), is_more) if times else None

    def _step(self, row: FollowUp, queue: str) -> Step:
        """Return the step for one record.

        An unreadable record is logged. If its job is a member of a batch, the member counts as failed, or as skipped if
        the job was cancelled.
        """
        now_ms = self._ended_ms(row.entry)
        try:
            follows = follow_ups(row.ended, row.envelope, row.failure, queue=queue_of(queue), now_ms=now_ms)
        except (msgspec.MsgspecError, UnreadableEnvelope, UnicodeError, RecursionError) as error:
            logger.error(
                "queue %s: the record %s of an ended job cannot be read, so the rest of its chain is not sent: %s",
                queue_of(queue),
                row.entry,
                error,
            )
            follows = follow_ups_of_unreadable(row.ended, row.envelope, row.failure, queue=queue_of(queue))
        return Step(row.entry, now_ms, follows)

    async def _carry_out(self, queue: str, steps: Sequence[Step], reserved_until: float) -> int:
        """Carry out the consequences of one page of records. Delete the finished records, and return their number.

        Also end the reservation of the outbox, unless the reservation has expired at `reserved_until`, because another
        relay may then have reserved the outbox.
        """
        await self._batches.note(steps)
        for step in steps:
            step.add(step.follows.jobs, f"{queue}.{step.entry}")
            if step.follows.batch is not None and step.error is None:
                await self._batches.start(step, step.follows.batch)
        await self._sender.send(steps)
        await self._batches.cancel_due(steps)
        await self._batches.cancel_late(steps)
        await self._batches.record_all_sent(steps)
        await self._batches.tell(steps)
        over = [step for step in steps if step.is_over]
        deleted = 0
        trip: list[Call[Any]] = []
        if over:
            trip.append(calls.ack_outbox(self._keys, queue, [step.entry for step in over]))
            trip += self._sender.shorten_tokens(over)
        if self._clock() < reserved_until:
            trip.append(calls.release_outbox(self._keys, queue))
        if trip:
            outcomes = await self._executor.run_all(trip)
            deleted = value_of(outcomes[0]) if over else 0
        return deleted
