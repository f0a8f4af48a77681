"""Access to Redis for a child: one named consumer, which fetches new jobs and settles finished ones.

To settle a job is to report the outcome of its attempt. One request, called a trip, contains all settlements and the
read of new jobs.

Each trip that reads a queue also reads the operators' pause and restart switches in the same request. Each wait reads
the switches at its end, unless a signal interrupts the wait, or a wait on a Redis Cluster returns a job. A paused queue
is not read. If the new switches show that the queue of a new job is paused, the job is handed back: it returns to its
queue at no cost.

If a queue refuses a call, for example because a key was damaged, the queue rests: for a second, no jobs are read from
it or settled in it. Other queues are not affected.
"""

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from delayq.backends.values import Delivery, DeliveryRef, Settlement, Switches
from delayq.core.errors import BackendError, CallRefused
from delayq.core.options import Options
from delayq.core.queue_order import Order, strict
from delayq.core.resting import RestingQueues
from delayq.core.shards import queue_of
from delayq.redis.calls import delivery as calls
from delayq.redis.calls.call import Call
from delayq.redis.calls.inspect import server_time_ms
from delayq.redis.calls.upkeep import has_records_since
from delayq.redis.connection.executor import Executor, Started
from delayq.redis.connection.leaf import WokenUp, drive
from delayq.redis.keys import Keys
from delayq.redis.server_clock import ServerClock
from delayq.redis.worker.grouping import by_queue, cut
from delayq.redis.worker.opening import create_missing, open_queues
from delayq.redis.worker.pending import read_all_pending
from delayq.redis.worker.settle import Settling, settling_calls
from delayq.redis.worker.switches import SwitchReader

PAUSED_WAIT: Final = 2.0
"""Longest wait for a job, in seconds, while a queue is paused or rests. A wait without a job reads the switches at its
end, so a short wait lets `resume` take effect soon.
"""

OFTEN: Final = 0.1
SELDOM: Final = 0.5
OFTEN_FOR: Final = 10.0
"""On a Redis Cluster, an idle child asks for jobs every OFTEN seconds during the first OFTEN_FOR seconds after its
start and after each wait that returned a job. After that, it asks every SELDOM seconds."""

AT_ONCE: Final = 0.05
"""If a wait on a Redis Cluster begins less than this many seconds after the last read of the previous wait, it pauses
before its first read, because the queues have just been read."""

RELAY_TIME_MS: Final = 15_000
"""A child waits for the follow-up job of an outbox record only while the record is younger than this, in ms. A relay
needs some milliseconds for a record, or about 10 s if another relay has died. An older record waits for something else,
such as a unique key, or no relay serves the queue."""

NOT_SETTLED: Final = CallRefused("the queue refused a call; settle the job again later")


class Trip(msgspec.Struct, frozen=True):
    """A pipelined request that awaits its reply.

    It sends settlements. If a queue is read, the request also reads the new jobs of this queue, and the switches.

    If jobs are wanted but all queues are paused or rest, only the switches are read, at most once in 2 s.

    `settling`: the calls that settle jobs. `settled`: number of settlements that `begin` was asked for, including those
    that were not sent because their queue rests. `reading`: the queue that is read; None = no queue. `lower`: the
    queues with a lower priority. `limit`: number of new jobs that are wanted; `_take_lower` may bring more.
    """

    started: Started[Any]
    settling: list[Settling]
    settled: int
    reading: str | None
    lower: Sequence[str]
    limit: int


class RedisConsumer:
    """Implements the protocol Consumer with Redis.

    `queues`: the shards of all queues. A shard is a part of a queue with its own keys; most queues have one. `name`:
    the consumer name in Redis. `order`: sorts the queues by their priority for the next read; the shards of one queue
    take turns. `forced`: ignore a pause for maintenance, but no other pause.
    """

    def __init__(
        self,
        executor: Executor,
        keys: Keys,
        queues: Sequence[str],
        options: Options,
        *,
        name: str,
        order: Order = strict,
        forced: bool = False,
    ) -> None:
        self.name = name
        self._executor = executor
        self._keys = keys
        self._queues = queues
        self._options = options
        self._order = order
        self._resting = RestingQueues()
        self._shards: dict[str, list[str]] = {}
        for shard in queues:
            self._shards.setdefault(queue_of(shard), []).append(shard)
        self._given = dict.fromkeys(queues, 0)
        self._had_jobs: set[str] = set()
        self._switches = SwitchReader(keys, {queue: len(names) for queue, names in self._shards.items()}, forced=forced)
        self._clock = ServerClock()
        self._look_at_ms = 0
        self._time = time.monotonic
        self._polls_often_until = self._time() + OFTEN_FOR
        self._last_read: tuple[Sequence[str], float] = ([], 0.0)

    def open(self) -> float:
        """Create missing parts of the queues, register this consumer, and return the shortest lease, in seconds."""
        lease = open_queues(
            self._executor,
            self._keys,
            self._queues,
            self._options,
            consumer=self.name,
            resting=self._resting,
            clock=self._clock,
        )
        self._read_switches()
        return lease

    def now_ms(self) -> int:
        """Return the time of the server in epoch ms, without a call to it."""
        return self._clock.now_ms()

    def switches(self) -> Switches:
        """Return the pause and restart switches, as they were last read."""
        return self._switches.at(self.now_ms())

    def has_unread(self) -> bool:
        """Return True if the last call for a queue failed. The queue may then have jobs that the child does not see."""
        return self._resting.have_refused()

    def has_follow_ups(self) -> bool:
        """Return True if an outbox has a record that is younger than RELAY_TIME_MS.

        An outbox that cannot be read counts as empty.
        """
        since_ms = self.now_ms() - RELAY_TIME_MS
        requests = [has_records_since(self._keys, queue, since_ms) for queue in self._queues]
        return any(outcome is True for outcome in drive(self._executor.run_all(requests)))

    def begin(self, settled: Sequence[Settlement], limit: int) -> Trip:
        """Send settlements and a read of up to `limit` new jobs in one request, without waiting for its reply.

        If handlers changed chains, first store these chains with a separate request, and wait for the reply of that
        request. Settlements for resting queues are not sent; `complete` returns NOT_SETTLED for them.
        """
        settling = [one for one in settling_calls(self._keys, settled) if not self._resting.is_resting(one.queue)]
        if any(one.before is not None for one in settling):
            settling = self._with_stored_chains(settling)
        requests: list[Call[Any]] = [one.call for one in settling]
        queues = self._readable() if limit else []
        reading = queues[0] if queues else None
        if reading is not None:
            requests.append(calls.read_new(self._keys, reading, self.name, limit))
            requests += self._state_calls()
        elif limit and self.now_ms() >= self._look_at_ms:
            # All queues are paused or rest. A child with running jobs does not call `wait`, so read the switches here.
            self._look_at_ms = self.now_ms() + int(PAUSED_WAIT * 1000)
            requests += self._state_calls()
        started = drive(self._executor.start(requests))
        return Trip(started, settling, len(settled), reading, queues[1:], limit)

    def _with_stored_chains(self, settling: list[Settling]) -> list[Settling]:
        """Store the changed chains. Return the calls to send now, without those whose chains could not be stored."""
        first = [(one, one.before) for one in settling if one.before is not None]
        outcomes = drive(self._executor.run_all([before for _, before in first]))
        failed = []
        for (one, _), outcome in zip(first, outcomes, strict=True):
            if isinstance(outcome, BackendError):
                self._resting.rest(one.queue, outcome)
                failed.append(one.call)
        return [one for one in settling if one.call not in failed]

    def complete(self, trip: Trip) -> tuple[list[int | BackendError], list[Delivery]]:
        """Wait for the reply of a trip. If fewer than `limit` jobs came, read the queues with a lower priority.

        Returns an answer or error for each settlement, and the new jobs. Raises BackendError if the reply of the trip
        is lost. The settlements may then have taken effect. Later requests read queues with a lower priority, or hand
        back jobs of paused queues. If a later request fails, its error is not raised.
        """
        try:
            outcomes = drive(self._executor.finish(trip.started))
        except BackendError:
            self._clock.expire()
            raise
        settled, read = outcomes[: len(trip.settling)], outcomes[len(trip.settling) :]
        taken: list[Delivery] = []
        if trip.reading:
            self._keep_state(read[1:])
            # A later error must not hide the answers to the settlements, nor jobs that were read before it. If the
            # reply to a later read is lost, its jobs are found at the next renewal of leases, when the supervisor asks
            # for a replay.
            with suppress(BackendError):
                taken += self._taken([trip.reading], read[:1])
                if trip.lower:
                    self._note([trip.reading], taken)
                    self._take_lower(trip.lower, trip.limit, taken)
        elif read:
            self._keep_state(read)
        answers: list[int | BackendError] = [NOT_SETTLED] * trip.settled
        for settling, outcome in zip(trip.settling, settled, strict=True):
            if isinstance(outcome, BackendError):
                self._resting.rest(settling.queue, outcome)
            else:
                for position, answer in zip(settling.positions, outcome, strict=True):
                    answers[position] = answer
        return answers, taken

    def wait(self, timeout: float) -> list[Delivery]:
        """Wait up to `timeout` seconds for new jobs. Return at most one job of each shard.

        If a signal interrupts the wait, return the pending jobs instead, because the interrupted read may have
        delivered some. While a queue is paused or rests, the wait is at most 2 s.
        """
        queues = self._readable()
        if len(queues) < len(self._queues):
            timeout = min(timeout, PAUSED_WAIT, self._switches.seconds_to_end(self.now_ms()))
        if not queues:
            drive(self._executor.sleep(timeout))
            self._read_switches()
            return []
        if not self._executor.can_block:
            return self._poll(queues, timeout)
        requests: list[Call[Any]] = [calls.wait_new(self._keys, queues, self.name, max(int(timeout * 1000), 1))]
        try:
            outcome, *state = drive(self._executor.run_all([*requests, *self._state_calls()], block=timeout))
        except WokenUp:
            return self.pending()
        except BackendError:
            self._clock.expire()
            raise
        self._keep_state(state)
        if isinstance(outcome, BackendError):
            return self._take(queues, 1)  # one by one, because the error does not name the queue
        self._resting.worked(queues)
        return self._without_paused(outcome)

    def _poll(self, queues: Sequence[str], timeout: float) -> list[Delivery]:
        """Ask the nodes of a cluster for one job of each queue, again and again; see `wait`.

        The last read is in the same request as the switches. If the next wait follows at once, it begins with a pause.
        """
        end = self._time() + timeout
        was_read, self._last_read = self._last_read, ([], 0.0)
        has_read = was_read[0] == queues and self._time() < was_read[1] + AT_ONCE
        while True:
            now = self._time()
            if not has_read:
                reads: list[Call[Any]] = [calls.read_new(self._keys, queue, self.name, 1) for queue in queues]
                state = self._state_calls() if now >= end else []
                outcomes = drive(self._executor.run_all([*reads, *state]))
                if state:
                    self._keep_state(outcomes[len(reads) :])
                taken = self._taken(queues, outcomes[: len(reads)])
                now = self._time()
                if taken:
                    self._polls_often_until = now + OFTEN_FOR
                    return taken
                if state:
                    self._last_read = queues, now
                    return []
            has_read = False
            pause = min(OFTEN if now < self._polls_often_until else SELDOM, end - now)
            if pause > 0 and self._executor.pause(pause):
                return self.pending()

    def pending(self) -> list[Delivery]:
        """Read the jobs that were delivered to this consumer and are not settled. This renews their leases.

        Jobs of resting queues are left out.
        """
        queues = self._resting.awake(self._queues)
        return read_all_pending(self._executor, self._keys, queues, self.name, resting=self._resting)

    def hand_back(self, held: Sequence[DeliveryRef]) -> None:
        """Hand back jobs that were not started: return them to their queues.

        If a queue refuses the call, its jobs remain pending for this consumer.
        """
        pages = [(queue, page) for queue, jobs in by_queue(held).items() for page in cut(jobs, calls.MAX_HAND_BACK)]
        requests = [calls.hand_back(self._keys, queue, page) for queue, page in pages]
        self._resting.values([queue for queue, _ in pages], drive(self._executor.run_all(requests)))

    def unlock(self, job: DeliveryRef, digest: str) -> bool:
        """Free the unique key of a job that is about to start. Return False if the delivery is no longer valid."""
        return drive(self._executor.run(calls.unlock(self._keys, job, digest)))

    def store_progress(self, progress: Sequence[tuple[DeliveryRef, bytes]]) -> None:
        """Store progress reports of running jobs. Refused reports are dropped, for example if the server is full."""
        pages = [
            (queue, page)
            for queue, rows in by_queue([_Progress(ref.queue, ref, report) for ref, report in progress]).items()
            for page in cut(rows)
        ]
        requests = [calls.progress(self._keys, queue, [(row.ref, row.report) for row in page]) for queue, page in pages]
        drive(self._executor.run_all(requests))

    def _readable(self) -> list[str]:
        """Return the queues that may be read now, sorted by priority."""
        switches = self.switches()
        if switches.is_all_paused:
            return []
        queues: Iterable[str] = self._shards
        if switches.paused:
            queues = [queue for queue in queues if queue not in switches.paused]
        return self._resting.awake(self._in_turn(self._order(list(queues))))

    def _in_turn(self, queues: Sequence[str]) -> Sequence[str]:
        """Return the shards, queue by queue. In each queue, the shard with the fewest fetched jobs comes first."""
        if len(self._shards) == len(self._queues):
            return queues
        return [shard for queue in queues for shard in sorted(self._shards[queue], key=self._given.__getitem__)]

    def _take_lower(self, queues: Sequence[str], limit: int, taken: list[Delivery]) -> None:
        """Read queues by their priority, in few round trips, until `taken` has `limit` jobs.

        Each round trip reads the queues up to the first queue that had jobs at its last read, because the queues after
        this one are probably not needed. If other queues of the round trip have jobs too, `taken` can get more than
        `limit` jobs.
        """
        left = self._resting.awake(queues)
        while left and len(taken) < limit:
            count = next((n for n, queue in enumerate(left, 1) if queue in self._had_jobs), len(left))
            asked, left = left[:count], left[count:]
            reads = [calls.read_new(self._keys, queue, self.name, limit - len(taken)) for queue in asked]
            found = self._taken(asked, drive(self._executor.run_all(reads)))
            self._note(asked, found)
            taken += found

    def _note(self, queues: Sequence[str], taken: Sequence[Delivery]) -> None:
        """Record which of the queues that were read had jobs, and how many.

        If a shard had no jobs, its count is set to the highest count of all shards, so that the other shards of its
        queue are read first.
        """
        counts = Counter(job.queue for job in taken)
        self._had_jobs.difference_update(queues)
        self._had_jobs.update(counts)
        most = max(self._given.values())
        for queue in queues:
            self._given[queue] = self._given[queue] + counts[queue] if queue in counts else most

    def _take(self, queues: Sequence[str], limit: int) -> list[Delivery]:
        """Read up to `limit` new jobs, from one queue after the other."""
        taken: list[Delivery] = []
        for queue in self._resting.awake(queues):
            if len(taken) < limit:
                call = calls.read_new(self._keys, queue, self.name, limit - len(taken))
                taken += self._taken([queue], drive(self._executor.run_all([call])))
        return taken

    def _taken(self, queues: Sequence[str], outcomes: Sequence[list[Delivery] | BackendError]) -> list[Delivery]:
        """Return the new jobs from the outcomes of reads. Hand back jobs of paused queues.

        If the read of a queue failed, the queue rests.
        """
        known = [self._create_if_missing(queue, outcome) for queue, outcome in zip(queues, outcomes, strict=True)]
        return self._without_paused([job for jobs in self._resting.values(queues, known) for job in jobs])

    def _create_if_missing(self, queue: str, outcome: list[Delivery] | BackendError) -> list[Delivery] | BackendError:
        """Return the outcome of a read. If the queue has no consumer group, create the group first.

        The outcome is then an empty list, or the error of the creation. The group may be missing because the server
        refused writes when the worker started, because it lost its data, or because the queue was removed.
        """
        if not (isinstance(outcome, CallRefused) and "NOGROUP" in outcome.message):
            return outcome
        (created,) = create_missing(self._executor, self._keys, [queue], self._options)
        return created if isinstance(created, BackendError) else []

    def _without_paused(self, taken: list[Delivery]) -> list[Delivery]:
        """Hand back jobs whose queue is paused by the latest switches, and return the others."""
        switches = self.switches()
        if not taken or not (switches.paused or switches.is_all_paused):
            return taken
        unwanted = [job for job in taken if switches.is_all_paused or queue_of(job.queue) in switches.paused]
        if unwanted:
            self.hand_back([job.ref for job in unwanted])
        return [job for job in taken if job not in unwanted]

    def _read_switches(self) -> None:
        self._keep_state(drive(self._executor.run_all(self._state_calls())))

    def _state_calls(self) -> list[Call[Any]]:
        """Return the calls that read the switches and, if it is due, the time of the server."""
        return [*self._switches.calls, server_time_ms()] if self._clock.is_due() else self._switches.calls

    def _keep_state(self, outcomes: Sequence[Any]) -> None:
        """Keep the answers of `_state_calls`."""
        count = len(self._switches.calls)
        self._switches.keep(outcomes[:count])
        for server_ms in outcomes[count:]:
            if not isinstance(server_ms, BackendError):
                self._clock.set(server_ms)


class _Progress(msgspec.Struct, frozen=True, gc=False):
    queue: str
    ref: DeliveryRef
    report: bytes
