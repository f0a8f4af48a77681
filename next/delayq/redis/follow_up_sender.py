"""Sends the jobs that follow ended jobs. Each new job has a token, so that a job that is sent twice is stored once."""

import logging
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from delayq.core.errors import BackendError, DelayqError
from delayq.core.follow_up import FollowUps
from delayq.core.job_spec import NewJob
from delayq.core.options import Options
from delayq.core.shards import queue_of
from delayq.redis.calls import jobs as calls
from delayq.redis.calls.call import Call, command
from delayq.redis.calls.jobs import ShardsChanged
from delayq.redis.calls.queues import list_queue
from delayq.redis.connection.executor import Executor
from delayq.redis.keys import Keys
from delayq.redis.shard_counts import ShardCounts
from delayq.redis.trips import in_trips

TOKEN_MS: Final = 7 * 86_400_000
"""How long the server recognizes the token of a job whose record is still in the outbox."""

USED_TOKEN_MS: Final = 3_600_000
"""How long the server recognizes the token after its record was deleted. Another relay may still use the record."""

JOBS_PER_TRIP: Final = 250

logger: Final = logging.getLogger("delayq.loops")

WAIT_FOR_KEY: Final = 60.0
"""Seconds after which a job that cannot be sent from here is tried again, for example by a relay with other keys."""

WAIT: Final = 1.0
"""Seconds after which a job is sent again, because its unique key is taken or the number of shards has changed."""


class Send(msgspec.Struct, frozen=True, gc=False):
    """A job to send, and its token."""

    job: NewJob
    token: str


class Step(msgspec.Struct):
    """The work for one record of the outbox.

    * `now_ms`: the time at which the job ended. The delays of the next jobs count from this time.
    * `members`: members of batches that this step sends, each with the id of its batch. When all jobs of this step are
      stored, the batches record that these members were sent.
    * `cancels`: ids of batches whose waiting members must be cancelled.
    * `told`: duties, each with the id of its batch, to report as fulfilled when all jobs of this step are stored.
    * `again_in`: seconds until the next try, for example because a unique key is taken or a batch has more members to
      cancel; None = no further try is needed.
    * `error`: an error of this step; None = no error. After an error, the record is tried again too.
    """

    entry: str
    now_ms: int
    follows: FollowUps
    sends: list[Send] = []
    members: list[tuple[str, NewJob]] = []
    cancels: list[str] = []
    told: list[tuple[str, str]] = []
    again_in: float | None = None
    error: BackendError | None = None

    @property
    def is_over(self) -> bool:
        """True if the record can be deleted."""
        return self.error is None and self.again_in is None

    def add(self, jobs: Iterable[NewJob], token: str) -> None:
        """Add jobs to send. The token of each job is `token`, a dot and a number."""
        self.sends += [Send(job, f"{token}.{n}") for n, job in enumerate(jobs)]


class FollowUpSender:
    """Sends the jobs of steps."""

    def __init__(self, executor: Executor, keys: Keys, options: Options, counts: ShardCounts) -> None:
        self._executor = executor
        self._keys = keys
        self._options = options
        self._counts = counts

    async def send(self, steps: Sequence[Step]) -> None:
        """Send the jobs of all steps that have no error, and note the errors in the steps."""
        left = [(step, send) for step in steps if step.error is None for send in step.sends]
        for start in range(0, len(left), JOBS_PER_TRIP):
            page = left[start : start + JOBS_PER_TRIP]
            queues = dict.fromkeys(send.job.queue for _, send in page)
            trip: list[Call[Any]] = [list_queue(self._keys, queue) for queue in queues]
            ready = [(step, send, call) for step, send in page if (call := self._call_or_wait(step, send)) is not None]
            trip += [call for _, _, call in ready]
            outcomes = await self._executor.run_all(trip)
            for (step, send, _), outcome in zip(ready, outcomes[len(queues) :], strict=True):
                await self._note(step, send, outcome)

    def shorten_tokens(self, steps: Iterable[Step]) -> list[Call[Any]]:
        """Return the calls that make Redis forget the tokens of these steps sooner."""
        return [
            command("PEXPIRE", self._key_of_token(send), USED_TOKEN_MS, parse=bool)
            for step in steps
            for send in step.sends
        ]

    def _call_or_wait(self, step: Step, send: Send) -> Call[list[calls.Placed]] | None:
        """Return the call that sends a job, or None if the job cannot be sent from here.

        A unique job of a queue with several shards cannot be sent if it has an id of its own, or if its payload must be
        encrypted again and this fails, for example because a key is missing.
        """
        try:
            return self._call(send)
        except DelayqError as error:
            logger.error("job %s (queue %s) is not sent: %s", send.job.name, send.job.queue, error)
            step.again_in = WAIT_FOR_KEY
            return None

    def _call(self, send: Send) -> Call[list[calls.Placed]]:
        ((shard, count, ((_, job),)),) = in_trips([(0, send.job)], self._counts, self._options.key_ring)
        return calls.schedule(
            self._keys,
            shard,
            [job],
            taken="kept",
            high_water=self._options.high_water,
            lease_ms=self._options.lease_ms,
            token=send.token,
            once_ms=TOKEN_MS,
            shards=count,
        )

    async def _note(self, step: Step, send: Send, outcome: Any) -> None:
        if isinstance(outcome, ShardsChanged):
            step.again_in = WAIT
            try:
                await self._counts.have_changed(queue_of(send.job.queue))
            except BackendError as error:
                step.error = error
        elif isinstance(outcome, BackendError):
            step.error = outcome
        elif outcome[0].answer == "kept" and send.job.lock and not _is_own(outcome[0], send.job):
            step.again_in = WAIT

    def _key_of_token(self, send: Send) -> str:
        ((shard, _, _),) = in_trips([(0, send.job)], self._counts, self._options.key_ring)
        return self._keys.of_queue(shard, f"once:{send.token}")


def _is_own(placed: calls.Placed, job: NewJob) -> bool:
    """Return True if the job that owns the unique key is the job itself, which an earlier try has stored."""
    return placed.id == job.id
