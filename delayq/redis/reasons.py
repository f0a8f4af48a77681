"""Why has this job not run? Everything that `core.why` wants to know of one job is asked here."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from delayq.core.diagnosis import judge
from delayq.core.follow import readable_part
from delayq.core.states import State
from delayq.core.views import JobInfo, WorkerInfo
from delayq.core.why import Around, Reason, explain
from delayq.redis.called_off import called_off
from delayq.redis.checkup import gather
from delayq.redis.client import Client
from delayq.redis.held_up import held_up
from delayq.redis.verbs import Flow, Verbs

WAITS: Final = (State.SCHEDULED, State.READY)
OPEN: Final = (*WAITS, State.RESERVED)


def reasons(client: Client, info: JobInfo) -> list[Reason]:
    """Why this job is where it is, the heaviest reason first. Raises `BackendError` when Redis cannot be asked."""
    [stats] = client.stats(info.queue)
    findings = judge(gather(client, queues=[info.queue])) if info.state in OPEN else ()
    about = client.run(around(client.verbs, info, client.workers() if info.state in OPEN else ()))
    return explain(info, stats, findings, high_water=client.options.high_water, around=about)


def around(verbs: Verbs, info: JobInfo, workers: Iterable[WorkerInfo]) -> Flow[Around]:
    """What may keep a job from running besides its queue: limits, its batch, its workers."""
    seen = tuple(workers)
    if info.state not in WAITS or info.envelope is None:
        return Around(workers=seen)
    limits = yield from held_up(verbs, info.queue, info.id, info.name)
    part = readable_part(info.envelope)
    off = False
    if part is not None and part.batch is not None:
        off = yield from called_off(verbs, part.batch, info.id, part.spared)
    return Around(tuple(limits), seen, off)
