"""/v1/workers, /v1/audit: who works, and who did what."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response

from delayq.core import shapes
from delayq.core.control import WorkerOrder
from delayq.http import blame
from delayq.http.access import Admin, Caller, Reader
from delayq.http.answers import answer
from delayq.http.api.models.queues import Deeds, Ordered, Why, Workers
from delayq.http.bodies import read_any
from delayq.http.documented import answers, takes
from delayq.http.problems import Refused, plain
from delayq.http.service import Served, Service

router = APIRouter(prefix="/v1", tags=["workers"])


@router.get("/workers", summary="The workers that are here", responses=answers({200: ("All of them.", Workers)}))
async def workers(service: Served, caller: Reader) -> Response:
    """Those that said so lately, with what they run. A key for some queues sees the workers that serve one of them,
    and of these what belongs to its queues; the names of their jobs only where all their queues are its own."""
    found = await service.client.workers()
    return answer(
        {"workers": [_seen(shapes.worker(one), caller) for one in found if any(map(caller.sees, one.queues))]}
    )


@router.post(
    "/workers/{name}/{order}",
    summary="Tell a worker what to do",
    openapi_extra=takes(Why, {"reason": "it runs hot"}, required=False),
    responses=answers({200: ("It was told; it obeys within seconds.", Ordered)}),
)
async def order_worker(
    request: Request,
    service: Served,
    caller: Admin,
    name: Annotated[str, Path(max_length=300, description="A name from `GET /v1/workers`.")],
    order: Annotated[WorkerOrder, Path(description="quiet: end its jobs, take no new ones. stop, restart: leave.")],
) -> Response:
    """`quiet` lets it end its jobs and take no new ones until `resume`. `stop` and `restart` let it end its jobs within
    its grace and leave with exit code 0; after a `restart` its process manager starts it again. A key for some queues
    may tell only workers that serve no others."""
    asked = await read_any(request, Why)
    with blame.told_by(asked):
        await check_reach(service, caller, name)
        await service.record(caller, f"worker {order}", name, reason=asked.reason or "")
        told = await service.client.order_worker(name, order)
    return answer(shapes.ordered(told))


async def check_reach(service: Service, caller: Caller, name: str) -> None:
    """Raise `Refused` when the worker serves a queue that the caller's key does not cover."""
    meant = [one for one in await service.client.workers() if name in (one.name, one.worker)]
    if meant and not all(map(caller.sees, meant[0].queues)):
        raise Refused(plain(403, "This worker serves queues that the key does not cover."))


@router.get("/audit", summary="Who did what", responses=answers({200: ("The newest first.", Deeds)}))
async def audit(service: Served, caller: Admin, limit: Annotated[int, Query(ge=1, le=1_000)] = 100) -> Response:
    """What was done by hand, over API, pages and command line; jobs that were made or served are not among it.

    It is of all queues, so a key for some queues gets 403."""
    if caller.key is not None and caller.key.queues:
        raise Refused(plain(403, "The audit log is of all queues, and this key is for some of them."))
    return answer({"deeds": [shapes.deed(one) for one in await service.client.audit_log.last(limit)]})


def _seen(worker: dict[str, Any], caller: Caller) -> dict[str, Any]:
    """A worker without what belongs to queues that the caller does not see."""
    if all(map(caller.sees, worker["queues"])):
        return worker
    seen = {**worker, "queues": [queue for queue in worker["queues"] if caller.sees(queue)]}
    seen.pop("jobs", None)
    running = worker.get("running")
    rows = [row for row in running if isinstance(row, dict)] if isinstance(running, list) else []
    seen["running"] = [row for row in rows if isinstance(row.get("queue"), str) and caller.sees(row["queue"])]
    return seen
