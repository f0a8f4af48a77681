"""Where the time goes: microseconds of CPU per job, layer by layer, each by itself in batches as they travel."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from hiredis import pack_command

from benchmarks.figures import Report, Row, Samples
from benchmarks.plan import Plan
from benchmarks.rig import Rig, quiet_logs, rig_on
from benchmarks.work import NAME as JOB_NAME
from benchmarks.work import QUEUE, registry_of, specs
from delayq.core import envelope as envelopes
from delayq.core.backoff import DEFAULT
from delayq.core.options import MOST_ENVELOPE
from delayq.core.outcome import DONE, Policy
from delayq.core.spec import Prepared, prepare
from delayq.core.states import OnConflict
from delayq.drivers.base import Delivery, Settlement
from delayq.drivers.redis_batch import Batch
from delayq.jobs.job import Job
from delayq.jobs.registry import Registry, using
from delayq.redis import settling
from delayq.redis.calls import produce
from delayq.redis.calls.call import Call
from delayq.redis.keys import GROUP
from delayq.redis.send import words_of
from delayq.worker.attempt import Attempt, Attempts
from delayq.worker.clock import boot_clock
from delayq.worker.crew_inline import Inline
from delayq.worker.held import Held
from delayq.worker.holding import Holding
from delayq.worker.lines import Farewell, Lines, Progress
from delayq.worker.listeners import Listeners
from delayq.worker.policies import Policies
from delayq.worker.prefetch import MOST
from delayq.worker.slots import Slots, Word

NAME = "layers"
ROUNDS = 20
FUTURE_MS = 1_900_000_000_000

Work = Callable[[], object]


def run(plan: Plan) -> Report:
    """The client's layers by this thread's CPU clock, the server's by its own count of each script's time."""
    with plan.server() as server, server.client() as client, rig_on(server) as rig, quiet_logs():
        rows = [*_producing(plan, rig, client), *_consuming(plan, rig, client)]
    return Report(rows)


def _producing(plan: Plan, rig: Rig, client: Any) -> list[Row]:
    wanted, size = specs(produce.CHUNK), produce.CHUNK
    jobs = [prepare(spec, rig.options, 0) for spec in wanted]
    rig.client.schedule_many(specs(1))  # the queue is there: plain jobs go the short way from then on
    call = _call(rig, jobs)
    reply = client.execute_command(*words_of(call, whole=True))
    return [
        _row(plan, "prepare: check, id, payload, envelope", size, lambda: _prepared(rig, wanted)),
        _row(plan, "call: arguments of later.lua", size, lambda: _call(rig, jobs)),
        _row(plan, "pack: the command's bytes", size, lambda: pack_command(words_of(call))),
        _server_row(plan, "later.lua in the server", size, client, partial(_schedule_once, rig, client)),
        _row(plan, "answer: references from the reply", size, lambda: call.parse(reply)),
        _server_row(plan, "promote.lua in the server", 500, client, partial(_promote_once, rig, client)),
    ]


def _prepared(rig: Rig, wanted: Sequence[Any]) -> list[Prepared]:
    return [prepare(spec, rig.options, 0) for spec in wanted]


def _call(rig: Rig, jobs: Sequence[Prepared]) -> Call[produce.Scheduled]:
    """What `schedule_many` sends for plain jobs of a queue it knows."""
    call = produce.later(rig.scope, jobs, OnConflict.KEEP)
    if call is None:
        raise RuntimeError("these jobs are none for the short way")
    return call


def _schedule_once(rig: Rig, client: Any) -> None:
    rig.clear(client)
    rig.client.schedule_many(specs(20))
    client.config_resetstat()
    rig.client.schedule_many(specs(produce.CHUNK))


def _promote_once(rig: Rig, client: Any) -> None:
    rig.clear(client)
    rig.client.schedule_many(specs(500))
    client.config_resetstat()
    rig.promote_at(FUTURE_MS)


def _consuming(plan: Plan, rig: Rig, client: Any) -> list[Row]:
    rows = _read_once(rig, client)
    batch = Batch(MOST_ENVELOPE)
    batch.take(QUEUE, rows)
    deliveries = batch.deliveries
    [(call, _, _)] = settling.done(lambda queue: rig.scope, deliveries)
    bench = _Bench(registry_of(_nothing))
    as_class, surrounded = _Bench(_class_registry()), _Bench(_surrounded())
    return [
        _server_row(plan, "XREADGROUP in the server", MOST, client, partial(_read_once, rig, client), "xreadgroup"),
        _row(plan, "deliveries from the reply", MOST, lambda: Batch(MOST_ENVELOPE).take(QUEUE, rows)),
        _row(plan, "decode the envelope", MOST, lambda: [envelopes.decode(item.raw) for item in deliveries]),
        _row(plan, "decode, find the handler, may it start?", MOST, lambda: bench.prepare(deliveries)),
        _row(plan, "keep the books in shared memory", MOST, lambda: bench.hold(deliveries)),
        _row(
            plan, "all of a child's work but Redis: the two above, arguments, call", MOST, lambda: bench.run(deliveries)
        ),
        _row(plan, "the same, with a Job class", MOST, lambda: as_class.run(deliveries)),
        _row(plan, "the same, with middleware around the function", MOST, lambda: surrounded.run(deliveries)),
        _row(plan, "settle: arguments of done.lua", MOST, lambda: settling.done(lambda queue: rig.scope, deliveries)),
        _row(plan, "pack: the command's bytes ", MOST, lambda: pack_command(words_of(call))),
        _server_row(plan, "done.lua in the server", MOST, client, partial(_ack_once, rig, client)),
    ]


def _read_once(rig: Rig, client: Any) -> list[Any]:
    """Fill the stream with one batch and read it; the rows as Redis sends them."""
    rig.clear(client)
    rig.client.schedule_many(specs(MOST))
    rig.promote_at(FUTURE_MS)
    client.config_resetstat()
    connection = client.connection_pool.get_connection()
    connection.send_command(
        "XREADGROUP", "GROUP", GROUP, "dq:bench", "COUNT", MOST, "STREAMS", rig.scope.keys.stream, ">"
    )
    [(_, rows)] = connection.read_response()
    client.connection_pool.release(connection)
    return list(rows)


def _ack_once(rig: Rig, client: Any) -> None:
    batch = Batch(MOST_ENVELOPE)
    batch.take(QUEUE, _read_once(rig, client))
    consumer = rig.driver.consumer("dq:bench", [QUEUE])
    client.config_resetstat()
    consumer.settle([Settlement(item, DONE) for item in batch.deliveries])
    consumer.close()


def _nothing(order_id: int, customer: str, total: str, note: str) -> None:
    """Nothing."""


def _surrounded() -> Registry:
    """The same with one plain middleware."""
    registry = registry_of(_nothing)
    registry.use(lambda job, next: next(job))
    return registry


def _class_registry() -> Registry:
    """The same as a class."""
    registry = Registry()
    with using(registry):

        class CloseOrder(Job, name=JOB_NAME):
            order_id: int
            customer: str
            total: str
            note: str

            def handle(self) -> None:
                """Nothing."""

    return registry


class _Bench:
    """A child without a backend: its books, and the crew that runs one handler at a time."""

    def __init__(self, registry: Registry) -> None:
        slots = Slots((QUEUE,), 2 * MOST)
        slots.floats[Word.LEASE] = 30.0
        self._holding = Holding(slots, lambda: 0)
        policies = Policies(Policy(tries=5, backoff=DEFAULT, timeout_ms=60_000))
        lines = Lines(self._holding.stop_asked, Progress(lambda told: None), Farewell())
        self._attempts = Attempts(registry, policies, lambda: 0, lines, Listeners())
        self._crew = Inline(self._holding, self._attempts, lambda: None)

    def prepare(self, deliveries: Sequence[Delivery]) -> None:
        """Up to the call of the handler."""
        for slot, item in enumerate(deliveries):
            self._attempts.prepare(Held(item, slot, 0.0, 2))

    def hold(self, deliveries: Sequence[Delivery]) -> None:
        """Waiting, running, finished, settled; no handler."""
        holding = self._holding
        holding.add(deliveries, boot_clock())
        while (held := holding.start()) is not None:
            holding.limit(held, 60.0)
            holding.finish(held, DONE)
        holding.settled(holding.take_finished())

    def run(self, deliveries: Sequence[Delivery]) -> None:
        """What a child does between two round trips."""
        holding, attempts = self._holding, self._attempts
        holding.add(deliveries, boot_clock())
        while (held := holding.start()) is not None:
            attempt = attempts.prepare(held)
            if isinstance(attempt, Attempt):
                holding.limit(held, attempt.limit_s)
                self._crew.start(held, attempt)
        holding.settled(holding.take_finished())


def _row(plan: Plan, what: str, jobs: int, work: Work) -> Row:
    """CPU of this thread; the least of some rounds is the layer, what is above it is the machine."""
    work()
    found = []
    for _ in range(plan.runs):
        best = float("inf")
        for _ in range(ROUNDS):
            started = time.thread_time_ns()
            work()
            best = min(best, (time.thread_time_ns() - started) / 1_000 / jobs)
        found.append(best)
    return Row(what, Samples(tuple(found), "µs"))


def _server_row(plan: Plan, what: str, jobs: int, client: Any, work: Work, command: str = "evalsha") -> Row:
    """What the server counted for the command since `work` reset its counts."""
    work()
    found = []
    for _ in range(plan.runs):
        best = float("inf")
        for _ in range(ROUNDS // 4):
            work()
            best = min(best, client.info("commandstats")[f"cmdstat_{command}"]["usec"] / jobs)
        found.append(best)
    return Row(what, Samples(tuple(found), "µs"))
