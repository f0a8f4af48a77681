"""/v1/jobs/bulk: one thing done to all jobs of a filter, counted beforehand."""

from __future__ import annotations

from collections import Counter
from typing import Final

from fastapi import APIRouter, Request, Response

from delayq.core.views import JobInfo
from delayq.http import blame, listing, many, outcomes
from delayq.http.access import Writer
from delayq.http.answers import answer
from delayq.http.api.models.bulk import Bulk, BulkAnswer
from delayq.http.bodies import invalid, members, read
from delayq.http.documented import answers, takes
from delayq.http.filters import Said
from delayq.http.listing import Wanted
from delayq.http.problems import Problem, Refused
from delayq.http.service import Served
from delayq.redis.aio import AsyncClient

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])
COUNTED: Final = 10_000
_WAITING: Final = ("scheduled", "ready")
STATES: Final = {
    "cancel": _WAITING,
    "archive": _WAITING,
    "run-now": _WAITING,
    "reschedule": _WAITING,
    "retry": ("failed",),
    "forget": ("failed", "completed"),
}
"""What each action means when no states are said, and all it may be asked of."""
EXAMPLE: Final = {"action": "retry", "filter": {"queue": "orders", "name": "order.*"}, "dry_run": True}


@router.post(
    "/bulk",
    summary="Do something to all jobs of a filter",
    openapi_extra=takes(Bulk, EXAMPLE),
    responses=answers({200: ("Done, or with `dry_run` counted.", BulkAnswer)}),
)
async def bulk(request: Request, service: Served, caller: Writer) -> Response:
    """With `dry_run` it only counts. Else at most 1,000 jobs are done, one by one: another caller's change to one of
    them keeps the others from nothing, and is told among the outcomes."""
    asked = await read(request, Bulk)
    _check(asked)
    wanted = await _said(asked).wanted(service, caller, "#/filter/")
    if asked.dry_run or asked.expect is not None:
        matched, exact = await listing.count(service.client, wanted, COUNTED)
        if asked.dry_run:
            return answer({"action": asked.action, "dry_run": True, "matched": matched, "exact": exact})
        if matched != asked.expect:
            said = f"Jobs that match: {matched:,}; expected: {asked.expect:,}."
            raise Refused(Problem(409, "conflict", said, "Count again with dry_run.", more={"matched": matched}))
    detail = ", ".join(f"{name} {value}" for name, value in members(asked.filter).items() if value is not None)
    await service.record(caller, f"bulk {asked.action}", asked.filter.queue, detail=detail, reason=asked.reason or "")
    with blame.told_by(asked):
        done, more = await _do(service.client, asked, wanted)
    if done and not many.done(done):
        outcomes.refused("It was done to none of these jobs.")
    return answer({"action": asked.action, "dry_run": False, "outcomes": done, "more": more})


def _said(asked: Bulk) -> Said:
    chosen = asked.filter
    meant = STATES[asked.action] if chosen.signature is None else ("failed",)
    states = meant if chosen.states is None else chosen.states
    times = (chosen.due_from, chosen.due_to)
    return Said(chosen.queue, states, chosen.name, chosen.tag, *times, signature=chosen.signature)


def _check(asked: Bulk) -> None:
    """Raises `Refused` for states that the action has no use for, and for a time that is missing or too many."""
    for state in asked.filter.states or ():
        if state not in STATES[asked.action]:
            rule = f"{asked.action} is for jobs that are {' or '.join(STATES[asked.action])}"
            raise Refused(invalid("#/filter/states", rule))
    if asked.filter.signature is not None and (
        "failed" not in STATES[asked.action] or set(asked.filter.states or ()) - {"failed"}
    ):
        raise Refused(invalid("#/filter/signature", "a signature chooses failed jobs only; use retry or forget"))
    if sum(one is not None for one in (asked.delay, asked.at)) != (asked.action == "reschedule"):
        raise Refused(invalid("#/delay", "reschedule needs exactly one of delay and at, and nothing else takes them"))


async def _do(client: AsyncClient, asked: Bulk, wanted: Wanted) -> tuple[Counter[str], bool]:
    """Collect first, then do: what is done leaves the list it was found in."""
    found: list[JobInfo] = []
    cursor = None
    while len(found) < asked.limit:
        listed = await listing.page(client, wanted, cursor, min(listing.MOST_ROWS, asked.limit - len(found)))
        found, cursor = found + listed.jobs, listed.next
        if cursor is None:
            break
    act = many.Act(asked.action, asked.delay, asked.at, asked.reason or "")
    return await many.do(client, act, many.which(found)), cursor is not None
