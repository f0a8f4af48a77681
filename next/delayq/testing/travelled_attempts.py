"""Runs ready jobs in the process of a test, with the parts of a worker. The jobs are in the private Redis server of
`delayq_travel`."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from delayq.backends.values import Delivery, SettleAnswer, Settlement, Stopped
from delayq.core.control_flow import JobInterrupted, failure_of
from delayq.core.envelope import decode
from delayq.core.errors import BackendError, UnreadableEnvelope
from delayq.core.events import Ended
from delayq.core.options import TIMEOUT_GRACE_MS, Options
from delayq.core.outcome import Outcome, default_policy
from delayq.core.shards import queue_of
from delayq.jobs.own_loop import run_in_own_loop
from delayq.jobs.registry import registry
from delayq.jobs.worker_context import WorkerContext
from delayq.redis.connection.executor import Executor
from delayq.redis.keys import Keys
from delayq.redis.worker.consumer import RedisConsumer
from delayq.worker.attempt import Attempt, Attempts, current_attempt
from delayq.worker.listened_attempt import class_of_attempts, ended_as
from delayq.worker.runners.job_runner import PLACE_RESERVE_MS

T = TypeVar("T")

CONSUMER: Final = "delayq-travel"


class Attempted(msgspec.Struct, frozen=True):
    """One attempt that `travel` has run.

    * `id`, `name`, `queue`: the id, name and queue of the job. `name` is '' if the envelope cannot be read.
    * `attempt`: the number of the attempt, counted from 1.
    * `at`: the time of the attempt, in UTC.
    * `outcome`: "done", "retried", "snoozed" (also a job that a limit refused), "failed", "discarded" or "cancelled".
    * `result`: the value that the handler returned.
    * `error`: the exception of the handler, or of application code after the handler, such as the hook `failed` or a
      backoff function; or None. For a `Fail` with an exception, `error` is the inner exception.
    """

    id: str
    name: str
    queue: str
    attempt: int
    at: datetime
    outcome: Ended
    result: Any = None
    error: BaseException | None = None


class TravelledAttempts:
    """Fetches, runs and settles the ready jobs of one key prefix. `now_ms`: returns the time of the test."""

    def __init__(self, executor: Executor, keys: Keys, options: Options, now_ms: Callable[[], int]) -> None:
        self._executor = executor
        self._keys = keys
        self._options = options
        self._now_ms = now_ms

    def run_ready(self, queues: Sequence[str]) -> list[Attempted]:
        """Run some ready jobs, at most one of each shard. `queues`: the names of all shards."""
        consumer = RedisConsumer(self._executor, self._keys, queues, self._options, name=CONSUMER)
        consumer.open()
        attempts = Attempts(
            registry,
            now_ms=self._now_ms,
            standard=default_policy(self._options),
            unlock=consumer.unlock,
            key_ring=self._options.key_ring,
            make=class_of_attempts(),
        )
        _, deliveries = consumer.complete(consumer.begin([], 1))
        done = []
        for delivery in deliveries:
            attempted, settlement = _outside_of_loops(partial(self._run, attempts, delivery))
            self._settle(consumer, settlement)
            done.append(attempted)
        return done

    def _run(self, attempts: Attempts, delivery: Delivery) -> tuple[Attempted, Settlement]:
        """Run one delivery in this thread, as the runner of a child does."""
        begun = attempts.begin(delivery)
        if not isinstance(begun, Attempt):
            return self._attempted(delivery, ended_as(begun)), begun
        timeout_ms = begun.policy.timeout_ms
        begun.job_context = WorkerContext(
            begun.envelope,
            delivery.envelope,
            tries=begun.policy.tries,
            due_ms=delivery.due_ms,
            recoveries=delivery.recoveries,
            token=delivery.entry,
            place_ms=timeout_ms and timeout_ms + TIMEOUT_GRACE_MS + PLACE_RESERVE_MS,
        )
        token = current_attempt.set(attempts.current)
        attempts.current.attempt = begun
        outcome: Outcome | None = None
        result: Any = None
        error: BaseException | None = None
        late_error: BaseException | None = None
        try:
            result, error = _called(begun)
            outcome = attempts.decide(begun, error)
            if hook := begun.context.run(attempts.call_failed_hook, begun, outcome):
                begun.context.run(run_in_own_loop, hook)
            settlement = attempts.settle(begun, outcome, result)
        except Exception as broken:
            error = late_error = broken
            settlement = attempts.settle_broken(begun, outcome, broken)
        finally:
            current_attempt.reset(token)
        begun.context.run(begun.tell_ended, settlement, outcome, late_error)
        return self._attempted(delivery, ended_as(settlement, outcome), result, failure_of(error)), settlement

    def _attempted(
        self, delivery: Delivery, outcome: Ended, result: Any = None, error: BaseException | None = None
    ) -> Attempted:
        name, attempt = "", 1
        with suppress(UnreadableEnvelope):
            envelope = decode(delivery.envelope)
            name, attempt = envelope.name, envelope.attempts + 1
        at = datetime.fromtimestamp(self._now_ms() / 1000, UTC)
        return Attempted(delivery.id, name, queue_of(delivery.queue), attempt, at, outcome, result, error)

    def _settle(self, consumer: RedisConsumer, settlement: Settlement) -> None:
        (answer,), _ = consumer.complete(consumer.begin([settlement], 0))
        if isinstance(answer, BackendError):
            raise answer
        if answer == SettleAnswer.STOP_ASKED:
            self._settle(consumer, Stopped(settlement.queue, settlement.id, settlement.entry))


def _called(attempt: Attempt) -> tuple[Any, BaseException | None]:
    """Call the handler, and return its result or its error. Let Ctrl-C and `pytest.fail` end the test."""
    try:
        if attempt.handler.is_async:
            return run_in_own_loop(attempt.acall(), context=attempt.context), None
        return attempt.call(), None
    except (Exception, JobInterrupted) as error:
        return None, error


def _outside_of_loops(run: Callable[[], T]) -> T:
    """Call a function in this thread, or in another thread if this one is running an event loop.

    A handler may need an event loop of its own, and a thread can run only one at a time.
    """
    if asyncio._get_running_loop() is None:
        return run()
    values: list[T] = []
    errors: list[BaseException] = []

    def call() -> None:
        try:
            values.append(run())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return values[0]
