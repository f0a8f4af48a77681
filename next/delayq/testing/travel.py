"""Runs jobs at the time that a test sets, on a private server, with the Lua scripts and parts of a worker."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from typing import Final

from delayq.core import clock
from delayq.core.errors import InvalidInput
from delayq.core.options import Options
from delayq.core.times import Duration, Instant, duration_ms, format_instant, instant_ms
from delayq.redis.calls.call import command
from delayq.redis.calls.inspect import list_queues
from delayq.redis.connection.executor import Executor
from delayq.redis.connection.factory import make_executor, parse_address
from delayq.redis.connection.leaf import drive
from delayq.redis.interception import intercepted
from delayq.redis.keys import Keys
from delayq.redis.relay import OutboxRelay
from delayq.redis.session import Session
from delayq.redis.shard_counts import ShardCounts
from delayq.redis.worker.queue_keeper import RedisQueueKeeper
from delayq.testing.server import PrivateServer
from delayq.testing.travelled_attempts import CONSUMER, Attempted, TravelledAttempts
from delayq.testing.travelled_executor import TravelledExecutor

MAX_ATTEMPTS: Final = 10_000
"""Maximum number of attempts in one call of `travel`. The limit stops jobs that dispatch themselves without a delay."""


@contextmanager
def travelling(*, server: PrivateServer | None = None) -> "Iterator[Travel]":
    """Send all jobs of this process to a private server inside the `with` block; see Travel to run them.

    This covers `dispatch` and all clients, also clients that were made before the block. The clock of delayq starts at
    the present time, and moves only when the test moves it.

    `server`: the server to use, which is emptied first; None = start one for this block. Raises ConfigError if no
    server program is found, and RuntimeError if the process is in such a block already, or in one of `faking`.

        with travelling() as travel:
            place_order(42)
            attempts = travel("15m")
    """
    with nullcontext(server) if server is not None else PrivateServer() as private:
        executor = make_executor(parse_address(private.url))
        drive(executor.run(command("FLUSHALL", parse=bool)))
        travel = Travel(executor)
        try:
            # The half millisecond keeps the time exact when it is converted to whole milliseconds.
            with clock.given(lambda: (travel.now_ms() + 0.5) / 1000), intercepted(travel._stand_in):
                yield travel
        finally:
            drive(executor.close())


class Travel:
    """The clock of a test. `travelling` and the fixture `delayq_travel` create this object.

    A call with a duration, such as `travel("15m")`, moves the clock. The call runs each job that becomes due, at the
    due time of the job, with retries, snoozes, chains, batches, limits and unique keys. Jobs run in this thread, or in
    another thread if this one is running an event loop. `travel("0s")` runs the jobs that are due now. A timeout does
    not interrupt a handler.
    """

    def __init__(self, executor: Executor) -> None:
        self._now_ms = int(clock.time() * 1000)
        self._executor = TravelledExecutor(executor, self.now_ms)
        self._places: dict[str, _Place] = {}

    @property
    def now(self) -> datetime:
        """The time of the test, in UTC."""
        return datetime.fromtimestamp(self._now_ms / 1000, UTC)

    def now_ms(self) -> int:
        """Return the time of the test, in epoch ms."""
        return self._now_ms

    def __call__(self, span: Duration) -> list[Attempted]:
        """Move the clock forward by a duration, and run the jobs that become due. Return all attempts in their order.

        The handlers' exceptions are not raised: the job is retried or fails, as in a worker. Raises InvalidInput, and
        RuntimeError after 10,000 attempts in one call, because a job then probably starts itself again without a delay.
        """
        return self._advance(self._now_ms + duration_ms(span, field="span"))

    def to(self, instant: Instant) -> list[Attempted]:
        """Move the clock forward to a point in time: RFC 3339 text with an offset, or an aware datetime.

        Returns and raises the same as a call with a duration. Raises InvalidInput for a time before `now`.
        """
        target_ms = instant_ms(instant, now_ms=self._now_ms, field="instant")
        if target_ms < self._now_ms:
            raise InvalidInput(
                f"The instant {instant} is before the time of the test, {format_instant(self._now_ms)}.",
                hint="Give a later time, because the clock only moves forward.",
                field="instant",
            )
        return self._advance(target_ms)

    def _stand_in(self, session: Session) -> Executor:
        """Return the executor that a client must use. From now on, run the jobs of the client's prefix.

        The options of the client apply to these jobs. Of several clients with the same prefix, the newest one counts.
        """
        self._places[session.keys.prefix] = _Place(self._executor, session.keys, session.options, self.now_ms)
        return self._executor

    def _advance(self, target_ms: int) -> list[Attempted]:
        done: list[Attempted] = []
        while True:
            self._run_due(done)
            next_ms = min((place.next_ms for place in self._places.values()), default=math.inf)
            if next_ms > target_ms or self._now_ms >= target_ms:
                break
            self._now_ms = max(int(next_ms), self._now_ms + 1)
        self._now_ms = target_ms
        self._run_due(done)
        return done

    def _run_due(self, done: list[Attempted]) -> None:
        """Run all jobs that are due now, and the jobs that follow them at once."""
        is_busy = True
        while is_busy:
            is_busy = False
            for place in list(self._places.values()):
                is_busy = place.step(done) or is_busy
            if len(done) >= MAX_ATTEMPTS:
                raise RuntimeError(
                    f"{len(done):,} attempts were run, the last one of the job {done[-1].name!r}, which probably "
                    "starts itself again without a delay."
                )


class _Place:
    """The queues of one key prefix. `now_ms`: returns the time of the test, in epoch ms.

    `next_ms`: the time of the next due job or of the next try of a follow-up job, or infinity.
    """

    def __init__(self, executor: Executor, keys: Keys, options: Options, now_ms: Callable[[], int]) -> None:
        self._executor = executor
        self._keys = keys
        self._now_ms = now_ms
        self.next_ms: float = math.inf
        self._counts = ShardCounts(executor, keys)
        self._keeper = RedisQueueKeeper(executor, keys, options, name=CONSUMER)
        self._relay = OutboxRelay(
            executor,
            keys,
            options,
            self._counts,
            name=CONSUMER,
            clock=lambda: now_ms() / 1000,
            ended_ms=lambda _: now_ms(),
        )
        self._attempts = TravelledAttempts(executor, keys, options, now_ms)

    def step(self, done: list[Attempted]) -> bool:
        """Make due jobs ready, run some ready jobs (see `run_ready`), and send the jobs that follow.

        Add the attempts to `done`. Return True if jobs were run or sent, or if more jobs can be sent at once.
        """
        queues = drive(self._executor.run(list_queues(self._keys)))
        shards = [shard for names in drive(self._counts.read_all(queues)).values() for shard in names]
        waits = [wait for shard in shards if (wait := self._promote(shard)) is not None]
        attempts = self._attempts.run_ready(shards) if shards else []
        done += attempts
        relayed = [drive(self._relay.relay(shard)) for shard in shards]
        for one in relayed:
            if one.error is not None:
                raise one.error
        waits += [one.again_in for one in relayed if one.again_in is not None]
        self.next_ms = self._now_ms() + math.ceil(min(waits) * 1000) if waits else math.inf
        return bool(attempts) or any(one.relayed or one.again_in == 0 for one in relayed)

    def _promote(self, shard: str) -> float | None:
        """Make due jobs ready. Return the seconds until the next due time of the queue; None = no job is scheduled."""
        while True:
            wait_us = self._keeper.promote(shard).wait_us
            if wait_us != 0:
                return None if wait_us < 0 else wait_us / 1_000_000
