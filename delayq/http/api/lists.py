"""/v1/jobs and /v1/failed as lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Query, Request, Response

from delayq.core import shapes
from delayq.core.failure import as_dict
from delayq.core.job_types import DAYS, HOURS, ordered
from delayq.core.sealing import hide
from delayq.core.views import JobInfo
from delayq.http import cursors, listing
from delayq.http.access import Reader
from delayq.http.answers import answer
from delayq.http.api.models.failed import FailedGroups, FailedPage
from delayq.http.api.models.jobs import JobPage, JobTypes
from delayq.http.bodies import invalid
from delayq.http.documented import answers
from delayq.http.filters import Said, of_failed, of_query
from delayq.http.places import ROWS, AnyQueue, Cursor, Rows, place
from delayq.http.problems import Refused
from delayq.http.service import Served
from delayq.redis.job_types import job_types

router = APIRouter(tags=["jobs"])
Filter = Annotated[Said, Depends(of_query)]
Hours = Annotated[int | None, Query(ge=1, le=HOURS, description="The last hours, in place of 24.")]
Days = Annotated[int | None, Query(ge=1, le=DAYS, description="The last days, in place of hours.")]
Order = Literal["attempts", "p50", "p99", "time", "failures", "failure-rate"]
Sort = Annotated[Order, Query(description="The largest comes first.")]


@router.get("/v1/jobs", summary="Jobs, page by page", responses=answers({200: ("A page.", JobPage)}))
async def list_jobs(
    request: Request, service: Served, caller: Reader, said: Filter, limit: Rows = ROWS, cursor: Cursor = ""
) -> Response:
    """Queue by queue in the order of their names, state by state, each in the order of its times.

    A job that moves while somebody turns pages may be seen twice or not at all; one that stays is seen once.
    """
    wanted = await said.wanted(service, caller, "?")
    listed = await listing.page(service.client, wanted, cursors.read(cursor, wanted.question), limit)
    return _page(request, [shapes.job(hide(info)) for info in listed.jobs], listed)


@router.get("/v1/failed", summary="Failed jobs, page by page", responses=answers({200: ("A page.", FailedPage)}))
async def list_failed(
    request: Request,
    service: Served,
    caller: Reader,
    said: Annotated[Said, Depends(of_failed)],
    limit: Rows = ROWS,
    cursor: Cursor = "",
) -> Response:
    """In the order they failed in, with their last error."""
    wanted = await said.wanted(service, caller, "?")
    listed = await listing.page(service.client, wanted, cursors.read(cursor, wanted.question), limit)
    rows = [{**shapes.job(hide(info)), "error": _error(info)} for info in listed.jobs]
    return _page(request, rows, listed)


@router.get("/v1/failed/groups", summary="Failed jobs by error", responses=answers({200: ("Groups.", FailedGroups)}))
async def list_groups(
    service: Served, caller: Reader, said: Annotated[Said, Depends(of_failed)], limit: Rows = ROWS
) -> Response:
    """Count failed jobs by job name and error. The newest 5,000 are looked at; `since` and `until` choose others.

    `POST /v1/jobs/bulk` with the `signature` of a group retries or forgets its jobs.
    """
    found = await listing.failure_groups(service.client, await said.wanted(service, caller, "?"))
    shown, rest = found.groups[:limit], found.groups[limit:]
    return answer(
        {
            "groups": list(map(shapes.failure_group, shown)),
            "looked": found.looked,
            "exact": not found.cursor,
            "others": found.others + sum(group.count for group in rest),
        }
    )


@router.get("/v1/job-types", summary="Metrics by job name", responses=answers({200: ("Job names.", JobTypes)}))
async def list_job_types(
    service: Served,
    caller: Reader,
    queue: AnyQueue = None,
    hours: Hours = None,
    days: Days = None,
    sort: Sort = "attempts",
) -> Response:
    """Attempts, failure rate and run times of each job name, as delayq's workers counted them.

    The window is the last 24 hours, or `hours` or `days`, and the hour or day that has begun. p50 and p99 are at most
    9.1 % off.
    """
    if hours is not None and days is not None:
        raise Refused(invalid("?days", "`days` was given with `hours`.", "Leave one of them out.", "invalid-input"))
    client = service.client
    name = None if queue is None else place(service, caller, queue)
    names = [one for one in await client.queues() if caller.sees(one)] if name is None else None
    found = await client.run(job_types(client.verbs, name, hours, days, names))
    return answer(shapes.job_types(found, ordered(found.types, sort)))


def _error(info: JobInfo) -> object:
    """The last error, without its history; None when nobody wrote one down."""
    if info.failure is None:
        return None
    told = as_dict(info.failure)
    told.pop("history", None)
    return told


def _page(request: Request, rows: Sequence[object], listed: listing.Listed) -> Response:
    following = cursors.write(listed.next) if listed.next else None
    headers = {}
    if following:
        query = [(name, value) for name, value in request.query_params.multi_items() if name != "cursor"]
        headers["Link"] = f'<{request.url.path}?{urlencode([*query, ("cursor", following)])}>; rel="next"'
    return answer({"jobs": rows, "next_cursor": following}, headers=headers)
