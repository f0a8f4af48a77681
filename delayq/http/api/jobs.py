"""/v1/jobs: one job made, looked at, moved, started, stopped."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Final
from urllib.parse import quote

from fastapi import APIRouter, Header, Query, Request, Response
from msgspec import UNSET, Raw, UnsetType

from delayq.core import shapes
from delayq.core.durability import parse_durability
from delayq.core.envelope import check_data
from delayq.core.errors import JobFinished, JobHasFailed, JobNotFound, JobRunning
from delayq.core.sealing import hide
from delayq.core.states import Answer, OnConflict
from delayq.core.views import JobRef
from delayq.http import blame
from delayq.http.access import Caller, Reader, Writer
from delayq.http.answers import answer
from delayq.http.api.models.jobs import Again, Answered, Copy, JobInFull, JobReasons, NewJobAlone, NewTime, Scheduled
from delayq.http.api.models.queues import Why
from delayq.http.bodies import invalid, read, read_any
from delayq.http.documented import answers, takes
from delayq.http.new_queues import admit_jobs
from delayq.http.places import Id, OneQueue, place
from delayq.http.problems import Refused, of_error
from delayq.http.repeats import KEY_EXAMPLE, repeatable
from delayq.http.service import Served, Service
from delayq.redis.calls.refusals import refusal
from delayq.redis.client import Client
from delayq.redis.idempotent import named, schedule_once
from delayq.redis.reasons import reasons

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])
Key = Annotated[str | None, Header(alias="Idempotency-Key", min_length=1, max_length=255, examples=[KEY_EXAMPLE])]
_ENDED: Final = {Answer.RUNNING: JobRunning, Answer.FAILED: JobHasFailed, Answer.FINISHED: JobFinished}
EXAMPLE: Final = {"name": "order.close", "data": {"order_id": 42}, "delay": "15m", "id": "order-42", "queue": "orders"}
DONE: Final = {
    "id": "order-42",
    "name": "order.close",
    "queue": "orders",
    "state": "scheduled",
    "due_ms": 1795273200000,
    "due": "2026-11-21T15:00:00.000Z",
    "outcome": "created",
}


@router.post(
    "",
    summary="Schedule a job",
    status_code=201,
    openapi_extra=takes(NewJobAlone, EXAMPLE),
    responses=answers({201: ("Created.", Scheduled), 200: ("It was there already.", Scheduled)}, DONE),
)
async def create(request: Request, service: Served, caller: Writer, key: Key = None) -> Response:
    """Created, or as `on_conflict` says when the id is taken. With an Idempotency-Key the same request within 24 hours
    gets the same answer and does nothing more. 403 for a queue that does not exist, where the key may make no more."""
    new = await read(request, NewJobAlone)
    check_queue(service, caller, new)
    headers = {}
    with blame.told_by(new):
        how = OnConflict(new.on_conflict)
        check_durability(new.durability)
        spec = new.spec()
        await admit_jobs(service, caller, [spec], how)
        if key is None:
            ref = await service.client.run(service.client.verbs.schedule(spec, how, new.durability))
        else:
            mark = repeatable(key, caller, await request.body())
            spec = new.spec(next(named([spec], mark)))
            once = await service.client.run(schedule_once(service.client.verbs, [spec], how, new.durability, mark))
            ref = _accepted(once.refs[0])
            headers = {"Idempotent-Replayed": "true"} if once.again else {}
    created = ref.outcome is Answer.CREATED
    where = f"/v1/jobs/{quote(ref.id, safe='')}?queue={quote(ref.queue, safe='')}"
    return answer(shapes.scheduled(ref), 201 if created else 200, {"Location": where, **headers})


def check_queue(service: Service, caller: Caller, new: Any, before: str = "#/") -> None:
    """Raises `Refused` for a queue that is none of the caller's, also one that a route or a forward leads to."""
    if caller.key is not None and caller.key.queues:
        with blame.told_by(new, before=before):
            options = service.client.options
            named = new.queue if new.queue is not None else options.queue_for(new.name)
            caller.enter(options.sent_to(named))
            caller.enter(named)


def check_durability(word: str | None) -> None:
    """Raises `InvalidInput` for what names none: before a queue is made known for it."""
    if word is not None:
        parse_durability(word)


def _accepted(ref: JobRef) -> JobRef:
    if isinstance(ref.outcome, Answer) and (error := refusal(ref.outcome, ref.id, ref.queue)):
        raise error
    return ref


@router.get(
    "/{job_id}",
    summary="One job in full",
    responses=answers({200: ("Everything known about it.", JobInFull)}),
)
async def show(service: Served, caller: Reader, job_id: Id, queue: OneQueue = None) -> Response:
    """Where it is, its payload, its attempts and their errors. An encrypted payload stays hidden."""
    name = place(service, caller, queue)
    info = await service.client.get(job_id, queue=name)
    if info is None:
        raise _unknown(job_id, name)
    return answer(shapes.job_in_full(hide(info)))


@router.get(
    "/{job_id}/why",
    summary="Why has it not run?",
    responses=answers({200: ("The heaviest reason first.", JobReasons)}),
)
async def why(service: Served, caller: Reader, job_id: Id, queue: OneQueue = None) -> Response:
    """What `delayq why` prints: its time, its queue, workers, limits, the server; and what to do about it."""
    name = place(service, caller, queue)
    info = await service.client.get(job_id, queue=name)
    if info is None:
        raise _unknown(job_id, name)
    client = Client(service.client.connector, service.client.options)
    return answer(shapes.why(info, await asyncio.to_thread(reasons, client, info)))


@router.patch(
    "/{job_id}",
    summary="Give a waiting job another due time",
    openapi_extra=takes(NewTime, {"delay": "30m"}),
    responses=answers({200: ("Moved.", Scheduled)}, {**DONE, "outcome": "rescheduled"}),
)
async def reschedule(request: Request, service: Served, caller: Writer, job_id: Id, queue: OneQueue = None) -> Response:
    """A job that runs, has failed or has finished is refused (409)."""
    name, new = place(service, caller, queue), await read(request, NewTime)
    if (new.delay is None) == (new.at is None):
        raise Refused(invalid("#/delay", "Exactly one of delay and at is needed"))
    with blame.told_by(new):
        await service.record(caller, "reschedule", f"{name} {job_id}", detail=new.delay or new.at or "")
        ref = await service.client.reschedule(job_id, queue=name, delay=new.delay, at=new.at, tz=new.tz, fold=new.fold)
    return answer(shapes.scheduled(ref))


@router.delete(
    "/{job_id}",
    summary="Cancel a job",
    responses=answers(
        {200: ("It will not run.", Answered), 202: ("It runs, and is asked to stop.", Answered)},
        {"id": "order-42", "queue": "orders", "outcome": "cancelled"},
    ),
)
async def cancel(
    service: Served,
    caller: Writer,
    job_id: Id,
    queue: OneQueue = None,
    running: Annotated[bool, Query(description="Ask it to stop if it runs.")] = False,
) -> Response:
    """What nobody has taken yet is gone. A job that runs (409) is only asked to stop, with `running`."""
    name = place(service, caller, queue)
    await service.record(caller, "cancel", f"{name} {job_id}", detail="running too" if running else "")
    said = await service.client.cancel(job_id, queue=name, running=running)
    if said is Answer.RUNNING and running:
        return answer(shapes.answered(job_id, name, said), 202)
    if said is Answer.UNKNOWN:
        raise _unknown(job_id, name)
    if said in _ENDED:
        hint = "Add ?running=true to ask it to stop." if said is Answer.RUNNING else ""
        raise Refused(of_error(_ENDED[said](f"The job {job_id!r} in queue {name!r} is {said}.", hint=hint)))
    return answer(shapes.answered(job_id, name, said))


@router.post(
    "/{job_id}/archive",
    summary="Put a waiting job among the failed",
    openapi_extra=takes(Why, {"reason": "the shop is closed"}, required=False),
    responses=answers({200: ("It is among the failed.", Answered)}),
)
async def archive(request: Request, service: Served, caller: Writer, job_id: Id, queue: OneQueue = None) -> Response:
    """What follows a failure follows; `retry` takes it up again. A job that runs or has ended is refused (409)."""
    name, asked = place(service, caller, queue), await read_any(request, Why)
    reason = asked.reason or ""
    await service.record(caller, "archive", f"{name} {job_id}", reason=reason)
    said = await service.client.archive(job_id, queue=name, reason=reason)
    if said is Answer.UNKNOWN:
        raise _unknown(job_id, name)
    if said is not Answer.ARCHIVED:
        raise Refused(of_error(_ENDED[said](f"The job {job_id!r} in queue {name!r} is {said}.")))
    return answer(shapes.answered(job_id, name, said))


@router.post(
    "/{job_id}/run-now",
    summary="Let a waiting job run at once",
    responses=answers({200: ("Ready, or due now on a paused queue.", Scheduled)}),
)
async def run_now(service: Served, caller: Writer, job_id: Id, queue: OneQueue = None) -> Response:
    """A job that runs, has failed or has finished is refused (409)."""
    name = place(service, caller, queue)
    await service.record(caller, "run-now", f"{name} {job_id}")
    return answer(shapes.scheduled(await service.client.run_now(job_id, queue=name)))


@router.post(
    "/{job_id}/retry",
    summary="Give a failed job all its tries again",
    openapi_extra=takes(Again, {"data": {"order_id": 42}, "reason": "the order id was wrong"}, required=False),
    responses=answers({200: ("It is due now.", Scheduled)}),
)
async def retry(request: Request, service: Served, caller: Writer, job_id: Id, queue: OneQueue = None) -> Response:
    """Only a failed job can be retried (else 409). `data` replaces its payload, unless that is encrypted (422)."""
    name, asked = place(service, caller, queue), await read_any(request, Again)
    with blame.told_by(asked):
        data = _changed(service, asked.data)
        detail = "" if data is UNSET else "with another payload"
        await service.record(caller, "retry", f"{name} {job_id}", detail=detail, reason=asked.reason or "")
        return answer(shapes.scheduled(await service.client.retry(job_id, queue=name, data=data)))


@router.post(
    "/{job_id}/clone",
    summary="Schedule a copy of a job",
    status_code=201,
    openapi_extra=takes(Copy, {"data": {"order_id": 42}, "delay": "15m"}, required=False),
    responses=answers({201: ("Created.", Scheduled)}, DONE),
)
async def clone(request: Request, service: Served, caller: Writer, job_id: Id, queue: OneQueue = None) -> Response:
    """Of a job in any state, in its queue; without its chain, batch and unique key. An `id` that is taken: 409."""
    name, asked = place(service, caller, queue), await read_any(request, Copy)
    with blame.told_by(asked):
        data = _changed(service, asked.data)
        detail = " ".join(filter(None, (asked.id, asked.delay, "" if data is UNSET else "with another payload")))
        await service.record(caller, "clone", f"{name} {job_id}", detail=detail, reason=asked.reason or "")
        ref = await service.client.clone(job_id, queue=name, data=data, id=asked.id, delay=asked.delay)
    where = f"/v1/jobs/{quote(ref.id, safe='')}?queue={quote(ref.queue, safe='')}"
    return answer(shapes.scheduled(ref), 201, {"Location": where})


def _changed(service: Service, data: Raw) -> Raw | UnsetType:
    """The payload of a body, checked; UNSET when it has none. Raises `InvalidPayload`."""
    return check_data(bytes(data), service.client.options.max_payload) if bytes(data) else UNSET


@router.post(
    "/{job_id}/forget",
    summary="Drop a failed or completed job",
    responses=answers({200: ("Gone.", Answered)}),
)
async def forget(service: Served, caller: Writer, job_id: Id, queue: OneQueue = None) -> Response:
    """Its id is free again. What waits is cancelled instead."""
    name = place(service, caller, queue)
    await service.record(caller, "forget", f"{name} {job_id}")
    [said] = await service.client.forget([job_id], queue=name)
    if error := refusal(said, job_id, name):
        raise error
    return answer(shapes.answered(job_id, name, said))


def _unknown(job_id: str, queue: str) -> JobNotFound:
    return JobNotFound(f"No job {job_id!r} is known in queue {queue!r}.")
