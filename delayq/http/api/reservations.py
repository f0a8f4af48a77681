"""/v1/queues/{queue}/reservations, /v1/reservations/{token}: the pull interface."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Request, Response

from delayq.core import shapes
from delayq.core.durations import duration_ms
from delayq.core.envelope import ABSENT
from delayq.core.failure import Failure, Recorded
from delayq.core.shards import queue_of
from delayq.core.signals import Fail, Snooze
from delayq.drivers.base import Claim
from delayq.http import blame
from delayq.http.access import Writer
from delayq.http.answers import answer
from delayq.http.api.models.reservations import (
    LONGEST_WAIT_MS,
    Ask,
    Broken,
    Done,
    Ended,
    Put,
    Renewed,
    Reservations,
)
from delayq.http.bodies import invalid, read, read_any
from delayq.http.documented import answers, takes
from delayq.http.new_queues import admit
from delayq.http.places import QueueName, place
from delayq.http.problems import Refused
from delayq.http.pull import tokens
from delayq.http.pull.desk import Reserved, Settled, failed
from delayq.http.seal import Seal
from delayq.http.service import Served, Service

router = APIRouter(prefix="/v1", tags=["pull"])
Token = Annotated[str, Path(min_length=1, max_length=tokens.MOST, pattern=r"^[A-Za-z0-9_.-]+$")]
ENDED: Final = answers({200: ("Settled.", Ended)}, {"id": "order-42", "queue": "orders", "outcome": "done"})


@router.post(
    "/queues/{queue}/reservations",
    summary="Reserve jobs",
    openapi_extra=takes(Ask, {"count": 10, "wait": "5s"}, required=False),
    responses=answers({200: ("What came.", Reservations)}),
)
async def reserve(request: Request, service: Served, caller: Writer, queue: QueueName) -> Response:
    """Answers as soon as there is something, or when `wait` is over. Renew each reservation well before its lease ends,
    and settle it by ack, release or fail; one that is neither is delivered again."""
    name, asked = place(service, caller, queue), await read_any(request, Ask)
    with blame.told_by(asked):
        wait_ms = duration_ms(asked.wait)
    if wait_ms > LONGEST_WAIT_MS:
        raise Refused(invalid("#/wait", f"At most {LONGEST_WAIT_MS // 1000}s"))
    await admit(service, caller, name)
    found = await _unless_gone(request, service, name, asked.count, wait_ms / 1000)
    lease_ms = await service.desk.lease_ms(name) if found else 0
    seal = await service.seals.seal()
    return answer({"reservations": [_shape(one, lease_ms, seal) for one in found]})


async def _unless_gone(request: Request, service: Any, queue: str, count: int, wait_s: float) -> list[Reserved]:
    """The deliveries; a caller who hangs up leaves the line, and what came for him goes back."""
    taking = asyncio.ensure_future(service.desk.reserve(queue, count, wait_s))
    leaving = asyncio.ensure_future(_hung_up(request))
    try:
        await asyncio.wait((taking, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not taking.done():
            taking.cancel()
            return []
        found: list[Reserved] = await taking
        if leaving.done() and found:
            await service.desk.hand_back(queue, found)
            return []
        return found
    finally:
        taking.cancel()
        leaving.cancel()


async def _hung_up(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        continue


@router.post(
    "/reservations/{token}/renew",
    summary="Start a lease anew",
    responses=answers({200: ("It is yours for another lease.", Renewed)}, {"lease_ms": 30000, "stop": False}),
)
async def renew(service: Served, caller: Writer, token: Token) -> Response:
    """409 when the job is in other hands by now, 410 when it is over: stop the work then."""
    claim = await _claim(service, caller, token)
    stop = await service.desk.renew(claim)
    return answer({"lease_ms": await service.desk.lease_ms(queue_of(claim.queue)), "stop": stop})


@router.post(
    "/reservations/{token}/ack",
    summary="The work is done",
    openapi_extra=takes(Done, {"result": {"closed": True}}, required=False),
    responses=ENDED,
)
async def ack(request: Request, service: Served, caller: Writer, token: Token) -> Response:
    """409 or 410 when the reservation was over before: somebody else may do the work too, or has done it."""
    claim, asked = await _claim(service, caller, token), await read_any(request, Done)
    return _ended(await service.desk.settle(claim, partial(service.desk.done, asked.result)))


@router.post(
    "/reservations/{token}/release",
    summary="Not now",
    openapi_extra=takes(Put, {"delay": "5m"}, required=False),
    responses=ENDED,
)
async def release(request: Request, service: Served, caller: Writer, token: Token) -> Response:
    """The job comes again after `delay`; it costs no attempt."""
    claim, asked = await _claim(service, caller, token), await read_any(request, Put)
    with blame.told_by(asked):
        snooze = Snooze(asked.delay)
    return _ended(await service.desk.settle(claim, failed(snooze, None)))


@router.post(
    "/reservations/{token}/fail",
    summary="The attempt failed",
    openapi_extra=takes(Broken, {"message": "the bank said no", "type": "BankError"}),
    responses=ENDED,
)
async def fail(request: Request, service: Served, caller: Writer, token: Token) -> Response:
    """The job is tried again while it has tries, by its backoff; else, or with `final`, it has failed."""
    claim, asked = await _claim(service, caller, token), await read(request, Broken)
    with blame.told_by(asked):
        delay_ms = None if asked.delay is None else duration_ms(asked.delay)
    error = Recorded(Failure(asked.type, asked.message, asked.traceback))
    return _ended(await service.desk.settle(claim, failed(Fail(error) if asked.final else error, delay_ms)))


async def _claim(service: Service, caller: Writer, token: str) -> Claim:
    claim = tokens.read(token, await service.seals.seal())
    caller.enter(queue_of(claim.queue))
    return claim


def _ended(settled: Settled) -> Response:
    claim = settled.claim
    return answer({"id": claim.id, "queue": queue_of(claim.queue), "outcome": settled.outcome})


def _shape(one: Reserved, lease_ms: int, seal: Seal) -> dict[str, Any]:
    delivery, envelope = one.delivery, one.envelope
    return {
        "token": tokens.token_of(delivery, seal),
        "id": delivery.id,
        "name": envelope.name,
        "queue": queue_of(delivery.queue),
        "data": envelope.data,
        "encrypted": envelope.encrypted is not ABSENT,
        "headers": envelope.headers or {},
        "tags": envelope.tags or [],
        "attempt": envelope.attempts + 1,
        "tries": one.policy.tries,
        "recoveries": delivery.recoveries,
        **shapes.at("due", delivery.due_ms),
        "lease_ms": lease_ms,
        "fence": delivery.entry,
    }
