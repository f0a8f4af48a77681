"""/v1/jobs and /v1/failed as lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Request, Response

from delayq.core import shapes
from delayq.core.failure import as_dict
from delayq.core.sealing import hide
from delayq.core.views import JobInfo
from delayq.http import cursors, listing
from delayq.http.access import Reader
from delayq.http.answers import answer
from delayq.http.api.models.failed import FailedGroups, FailedPage
from delayq.http.api.models.jobs import JobPage
from delayq.http.documented import answers
from delayq.http.filters import Said, of_failed, of_query
from delayq.http.places import ROWS, Cursor, Rows
from delayq.http.service import Served

router = APIRouter(tags=["jobs"])
Filter = Annotated[Said, Depends(of_query)]


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
