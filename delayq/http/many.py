"""One thing done to many jobs, for the API and the pages: what becomes of one keeps no other from its turn."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from delayq.core.errors import Conflict, JobNotFound, PayloadLost
from delayq.core.views import JobInfo
from delayq.redis.aio import AsyncClient
from delayq.redis.calls.call import pages

AT_ONCE: Final = 16
UNDONE: Final = frozenset({"unknown", "running", "finished", "failed", "refused", "payload lost"})
"""Outcomes of jobs that nothing was done to: gone by then, or in a state the action is not for."""

Which = tuple[str, str]
"""A job: its queue and its id."""


@dataclass(frozen=True, slots=True)
class Act:
    """What is done: cancel, run-now, retry, forget, archive (`reason`), or reschedule with one of `delay` and `at`."""

    name: str
    delay: str | None = None
    at: str | None = None
    reason: str = ""


def which(infos: Sequence[JobInfo]) -> list[Which]:
    """Jobs that were found."""
    return [(info.queue, info.id) for info in infos]


async def do(client: AsyncClient, act: Act, jobs: Sequence[Which]) -> Counter[str]:
    """Do it to these; how many jobs had which outcome. Raises what is wrong with the act itself."""
    outcomes: Counter[str] = Counter()
    if act.name == "forget":
        for queue in dict.fromkeys(queue for queue, _ in jobs):
            said = await client.forget([job_id for at, job_id in jobs if at == queue], queue=queue)
            outcomes.update(map(str, said))
        return outcomes
    for some in pages(jobs, AT_ONCE):
        outcomes.update(await asyncio.gather(*(_one(client, act, queue, job_id) for queue, job_id in some)))
    return outcomes


def done(outcomes: Counter[str]) -> int:
    """To how many jobs it was done."""
    return sum(number for outcome, number in outcomes.items() if outcome not in UNDONE)


async def _one(client: AsyncClient, act: Act, queue: str, job_id: str) -> str:
    try:
        match act.name:
            case "cancel":
                return str(await client.cancel(job_id, queue=queue))
            case "archive":
                return str(await client.archive(job_id, queue=queue, reason=act.reason))
            case "run-now":
                return str((await client.run_now(job_id, queue=queue)).outcome)
            case "retry":
                return str((await client.retry(job_id, queue=queue)).outcome)
            case _:
                return str((await client.reschedule(job_id, queue=queue, delay=act.delay, at=act.at)).outcome)
    except JobNotFound:
        return "unknown"
    except PayloadLost:
        return "payload lost"
    except Conflict:
        return "refused"
