"""/v1/batches: many jobs as one. Batches belong to no queue, so a key for some queues does not see them."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response

from delayq.core import shapes
from delayq.core.names import check_batch_id
from delayq.http import blame
from delayq.http.access import Admin, Caller, Reader
from delayq.http.answers import answer
from delayq.http.api.models.queues import Batch, Batches, BatchInFull, BatchRetried, Why
from delayq.http.bodies import read_any
from delayq.http.documented import answers, takes
from delayq.http.problems import Refused, plain
from delayq.http.service import Served

router = APIRouter(prefix="/v1/batches", tags=["batches"])
BatchId = Annotated[str, Path(min_length=1, max_length=255, pattern=r"^[\x21-\x7e]{1,255}$")]
SHOWN = 50
_REASON = {"reason": "wrong prices"}


def _may_see(caller: Caller) -> None:
    if caller.key is not None and caller.key.queues:
        raise Refused(plain(403, "This key is for some queues, and batches belong to none."))


@router.get("", summary="The newest batches", responses=answers({200: ("Newest first.", Batches)}))
async def list_batches(service: Served, caller: Reader, limit: Annotated[int, Query(ge=1, le=500)] = 50) -> Response:
    """How each stands."""
    _may_see(caller)
    return answer({"batches": [shapes.batch(one) for one in await service.client.batches.list(limit)]})


@router.get("/{batch_id}", summary="One batch", responses=answers({200: ("In full.", BatchInFull)}))
async def show(service: Served, caller: Reader, batch_id: BatchId) -> Response:
    """How it stands, its members that failed, and some that have not ended."""
    _may_see(caller)
    batches = service.client.batches
    info, failed = await batches.get(check_batch_id(batch_id)), await batches.failed(batch_id)
    pending = await batches.pending(batch_id, SHOWN)
    more = {"failed_members": _members(failed[:SHOWN]), "pending_members": _members(pending)}
    return answer({**shapes.batch(info), **more})


@router.post(
    "/{batch_id}/cancel",
    summary="Let nothing of a batch start any more",
    openapi_extra=takes(Why, _REASON, required=False),
    responses=answers({200: ("What runs goes on.", Batch)}),
)
async def cancel(request: Request, service: Served, caller: Admin, batch_id: BatchId) -> Response:
    """What waits is cancelled, what runs goes on."""
    _may_see(caller)
    asked = await read_any(request, Why)
    with blame.told_by(asked):
        await service.client.batches.get(check_batch_id(batch_id))
        await service.record(caller, "batch cancel", batch_id, reason=asked.reason or "")
    return answer(shapes.batch(await service.client.batches.cancel(batch_id)))


@router.post(
    "/{batch_id}/retry",
    summary="Retry every member that failed",
    openapi_extra=takes(Why, _REASON, required=False),
    responses=answers({200: ("They are due now.", BatchRetried)}),
)
async def retry(request: Request, service: Served, caller: Admin, batch_id: BatchId) -> Response:
    """What was skipped stays skipped."""
    _may_see(caller)
    asked = await read_any(request, Why)
    with blame.told_by(asked):
        await service.client.batches.get(check_batch_id(batch_id))
        await service.record(caller, "batch retry", batch_id, reason=asked.reason or "")
    return answer({"id": batch_id, "retried": await service.client.batches.retry(batch_id)})


def _members(pairs: list[tuple[str, str]]) -> list[dict[str, Any]]:
    return [{"id": member, "queue": queue or None} for member, queue in pairs]
