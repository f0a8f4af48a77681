"""What operators do to all workers, as verbs: generators like those of `verbs`, which they are given."""

from __future__ import annotations

import logging
from functools import partial
from heapq import nlargest
from typing import Any, Final

from delayq.core.control import Control, WorkerOrder
from delayq.core.durations import duration_ms
from delayq.core.errors import BackendDamaged, BackendError, Conflict, InvalidInput, InvalidName, WorkerNotFound
from delayq.core.progress import Progress
from delayq.core.queue_events import QueueBusy, QueuePaused, QueueResumed
from delayq.core.shards import queue_of
from delayq.core.shown import shown
from delayq.core.views import JobInfo, OrderedWorker, QueueStats, WorkerInfo
from delayq.redis import whole
from delayq.redis.calls import inspect, operate
from delayq.redis.calls.call import Command, number, text
from delayq.redis.calls.operate import Switch
from delayq.redis.finding import every_shard
from delayq.redis.keys import Globals
from delayq.redis.verbs import Flow, Verbs
from delayq.redis.whole import in_all

log = logging.getLogger("delayq.workers")

ALL: Final = ""
"""No queue in particular, in events."""


def pause(verbs: Verbs, queue: str | None, length: str | None) -> Flow[int]:
    """Pause a queue, for a time or until resumed; answers until when."""
    name, for_ms = verbs.scope(queue).queue, operate.UNTIL_ENDED if length is None else max(1, duration_ms(length))
    yield from verbs.register(name)
    until_ms = yield from in_all(verbs, name, lambda scope: inspect.pause(scope, for_ms))
    yield from verbs.register_anew(name)  # as in `configure`
    verbs.tell(QueuePaused(name, until_ms))
    return until_ms


def resume(verbs: Verbs, queue: str | None) -> Flow[None]:
    """Undo a pause."""
    name = verbs.scope(queue).queue
    yield from in_all(verbs, name, inspect.resume)
    verbs.tell(QueueResumed(name))


def busy(verbs: Verbs, above: int, queue: str | None) -> Flow[list[QueueStats]]:
    """The queues that have that much to do, or more."""
    if above < 1:
        raise InvalidInput(f"above is {above}; it must be at least 1.", hint="A queue without a job is not busy.")
    found = [one for one in (yield from whole.stats(verbs, queue)) if one.load >= above]
    for one in found:
        verbs.tell(QueueBusy(one.queue, one.load, above))
    return found


def control(verbs: Verbs) -> Flow[Control]:
    """What holds for all workers."""
    found: Control = yield operate.control(verbs.scope(None))
    return found


def turn_on(verbs: Verbs, what: Switch, length: str | None, reason: str = "") -> Flow[Control]:
    """For a time, or until it is ended."""
    for_ms = operate.UNTIL_ENDED if length is None else max(1, duration_ms(length))
    found: Control = yield operate.switch(verbs.scope(None), what, for_ms, reason)
    if what is Switch.PAUSE:
        verbs.tell(QueuePaused(ALL, found.paused_until_ms or 0))
    return found


def turn_off(verbs: Verbs, what: Switch) -> Flow[Control]:
    """Now."""
    found: Control = yield operate.switch(verbs.scope(None), what, operate.END)
    if what is Switch.PAUSE:
        verbs.tell(QueueResumed(ALL))
    return found


def restart_workers(verbs: Verbs) -> Flow[Control]:
    """Call on all workers that were started until now to leave after their job."""
    found: Control = yield operate.restart(verbs.scope(None))
    return found


def workers(verbs: Verbs) -> Flow[list[WorkerInfo]]:
    """All workers that are alive, sorted by name."""
    keys = Globals(verbs.options.prefix)
    names: list[str] = yield Command(
        ("ZRANGE", keys.workers, 0, -1), lambda reply: sorted(map(text, reply)), reads=True
    )
    now_ms = yield from verbs.server_ms()
    found: list[WorkerInfo] = []
    for name in names:  # one by one: in a cluster they lie in different slots
        try:
            read = partial(inspect.worker, name, now_ms=now_ms)
            worker: WorkerInfo | None = yield Command(("GET", keys.worker(name)), read, True)
        except BackendError as error:
            if not (isinstance(error, BackendDamaged) or error.apart):
                raise
            # It holds something else, or its node of the cluster is away: the others are shown all the same.
            log.warning("the worker %s is left out: its record cannot be read: %s", shown(name), error)
            continue
        found += [worker] if worker else []
    return found


def order_worker(verbs: Verbs, name: str, order: WorkerOrder | str) -> Flow[OrderedWorker]:
    """Tell the worker of this name, or of a process of this name, what to do."""
    if order not in tuple(WorkerOrder):
        raise InvalidInput(f"{order!r} is no order for a worker.", hint=f"Use one of {', '.join(WorkerOrder)}.")
    found = yield from workers(verbs)
    meant = next((one for one in found if name in (one.name, one.worker)), None)
    if meant is None:
        raise WorkerNotFound(f"No live worker is called {shown(name)}.", hint="`delayq workers` lists their names.")
    if not meant.worker:
        told = f"The worker {shown(name)} takes no orders: it runs an older version of delayq."
        raise Conflict(told, hint="Send its process TERM, or use `delayq restart`.")
    yield operate.order(verbs.scope(None), meant.worker, WorkerOrder(order))
    return OrderedWorker(meant.worker, WorkerOrder(order), tuple(one for one in found if one.worker == meant.worker))


def remove_queue(verbs: Verbs, queue: str) -> Flow[None]:
    """Forget a queue that holds nothing and that no live worker serves."""
    name = verbs.scope(queue).queue
    serving = [one.name for one in (yield from workers(verbs)) if name in map(queue_of, one.queues)]
    yield from whole.remove(verbs, name, serving)


def progress(verbs: Verbs, job_id: str, queue: str | None) -> Flow[Progress | None]:
    """What a running job told last."""
    info = yield from verbs.get(job_id, queue)
    return info.progress if info else None


def recent_failures(verbs: Verbs, queue: str | None, limit: int) -> Flow[list[JobInfo]]:
    """The jobs that failed last, the newest first."""
    queues = (yield from verbs.queues()) if queue is None else [queue]
    newest: list[tuple[int, str, str]] = []
    for name in queues:
        for scope in (yield from every_shard(verbs, verbs.scope(name).queue)):
            rows: list[tuple[int, str]] = yield Command(
                ("ZREVRANGE", scope.keys.of("failed"), 0, limit - 1, "WITHSCORES"), scored, reads=True
            )
            newest += [(failed_ms, name, job_id) for failed_ms, job_id in rows]
    found: list[JobInfo] = []
    for _, name, job_id in nlargest(limit, newest):
        try:
            info = yield from verbs.get(job_id, name)
        except InvalidName as error:
            log.warning("a failed job of the queue %s is left out: %s", name, error)
            continue
        found += [info] if info is not None and info.failed_ms is not None else []  # it may have been retried meanwhile
    return found


def scored(reply: list[Any]) -> list[tuple[int, str]]:
    """Scores and members: RESP2 answers them flat, RESP3 in pairs."""
    flat = [item for row in reply for item in (row if isinstance(row, list | tuple) else (row,))]
    return [(number(_bytes(score)) or 0, text(member)) for member, score in zip(flat[::2], flat[1::2], strict=True)]


def _bytes(score: bytes | float) -> bytes:
    return score if isinstance(score, bytes) else str(score).encode()
