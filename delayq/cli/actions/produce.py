"""schedule, cancel, archive, reschedule, run-now."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from delayq.cli.payload import read_data
from delayq.cli.session import Session
from delayq.cli.words import moment
from delayq.core import shapes
from delayq.core.errors import (
    FoundElsewhere,
    InvalidInput,
    JobFinished,
    JobHasFailed,
    JobNotFound,
    JobRunning,
    NotConfirmed,
    OutcomeUnknown,
)
from delayq.core.names import new_id
from delayq.core.states import Answer, State
from delayq.core.views import JobRef
from delayq.redis.client import Client

if TYPE_CHECKING:
    from delayq.drivers.serving.desk import BrokerDesk, Sender

_CANCEL_CODES: Final = {
    Answer.CANCELLED: 0,
    Answer.UNKNOWN: JobNotFound.exit_code,
    Answer.RUNNING: JobRunning.exit_code,
    Answer.FAILED: JobHasFailed.exit_code,
    Answer.FINISHED: JobFinished.exit_code,
}
_CANCEL_NOTES: Final = {
    Answer.UNKNOWN: "No such job waits in this queue: it was done already, or lies in another queue (--queue).",
    Answer.RUNNING: "It runs; with --running it is asked to stop.",
    Answer.FAILED: "It has failed; `delayq failed forget` drops it.",
    Answer.FINISHED: "It was done before; its result is kept for its retention.",
}


@dataclass(frozen=True, slots=True)
class Request:
    """What `delayq schedule` was asked for. `options`: as `Client.schedule` takes them. `apps`: modules of `--app`."""

    name: str
    data: str | None
    on_conflict: str
    options: dict[str, Any]
    apps: Sequence[str] = ()


def schedule(session: Session, request: Request, *, as_json: bool) -> None:
    """Schedule one job and print its id."""
    _one_time(request.options)
    # Made here, so that it can be named when the answer is lost. An id nobody else has is never kept, only resent.
    given = request.options["id"]
    job_id = new_id() if given is None else given

    def answer(ref: JobRef) -> None:
        resent = given is None and ref.outcome is Answer.KEPT and ref.id == job_id
        _answer(session, msgspec.structs.replace(ref, outcome=Answer.CREATED) if resent else ref, as_json=as_json)

    with session.sender(request.apps) as client, _stored_is_told(answer):
        data = read_data(request.data, client.options.max_payload)
        with checkable(job_id, request.options["queue"] or _queue_of(request.name, client)):
            ref = client.schedule(
                request.name, data, on_conflict=request.on_conflict, **{**request.options, "id": job_id}
            )
    answer(ref)


def cancel(session: Session, job_id: str, queue: str | None, how: Mapping[str, Any], *, as_json: bool) -> int:
    """Cancel and print the answer; the exit code. `how` as `Client.cancel` takes it."""
    with session.desk() as client, checkable(job_id, where := queue or client.options.queue):
        session.record(client, "cancel", _target(job_id, where))
        tell = partial(_answer_cancel, session, job_id, where, running=how["running"], as_json=as_json)
        with _stored_is_told(tell):
            try:
                answer = client.cancel(job_id, queue=queue, **how)
            except FoundElsewhere as error:
                session.refused(error.message)
                tell(Answer.UNKNOWN, note=str(error))
                return error.exit_code
        code = 0 if answer is Answer.RUNNING and how["running"] else _CANCEL_CODES[answer]
        if code:
            session.refused(f"The job is {answer}.")
    tell(answer)
    return code


def archive(
    session: Session, job_id: str, queue: str | None, reason: str, durability: str | None, *, as_json: bool
) -> int:
    """Put a waiting job among the failed and print the answer; the exit code."""
    with session.client() as client, checkable(job_id, where := queue or client.options.queue):
        session.record(client, "archive", _target(job_id, where), reason=reason)
        tell = partial(_answer_archive, session, job_id, where, as_json=as_json)
        with _stored_is_told(tell):
            answer = client.archive(job_id, queue=queue, reason=reason, durability=durability)
        if answer is not Answer.ARCHIVED and _CANCEL_CODES[answer]:
            session.refused(f"The job is {answer}.")
    tell(answer)
    return 0 if answer is Answer.ARCHIVED else _CANCEL_CODES[answer]


def reschedule(
    session: Session, job_id: str, queue: str | None, when: Mapping[str, Any], durability: str | None, *, as_json: bool
) -> None:
    """Give a waiting job another time."""
    _one_time(when)
    if when["delay"] is None and when["at"] is None:
        raise InvalidInput("No time was given.", hint="Say --in 30m or --at 2026-11-21T15:00:00Z.")
    answer = partial(_answer, session, as_json=as_json)
    with session.desk() as client, checkable(job_id, queue or client.options.queue), _stored_is_told(answer):
        moved = str(when["delay"] or when["at"])
        session.record(client, "reschedule", _target(job_id, queue or client.options.queue), moved)
        ref = client.reschedule(job_id, queue=queue, durability=durability, **when)
    answer(ref)


def run_now(session: Session, job_id: str, queue: str | None, *, as_json: bool) -> None:
    """Let a waiting job run at once."""
    answer = partial(_answer, session, as_json=as_json)
    with session.desk() as client, checkable(job_id, queue or client.options.queue), _stored_is_told(answer):
        session.record(client, "run-now", _target(job_id, queue or client.options.queue))
        ref = client.run_now(job_id, queue=queue)
    answer(ref)


def _queue_of(name: str, desk: Client | BrokerDesk | Sender) -> str:
    """The queue of a job for which the command names none: the one its job declares, a route's, or the default."""
    where = desk.verbs if isinstance(desk, Client) else desk
    job = where.declaring.get(name)
    return (job and job.options.queue) or desk.options.queue_for(name)


@contextmanager
def checkable(job_id: str, queue: str) -> Iterator[None]:
    """When the answer is lost inside the block: which job it was, and how to see what became of it."""
    try:
        yield
    except OutcomeUnknown as error:
        raise OutcomeUnknown(
            f"{error.message} The job is {job_id!r} in queue {queue!r}.",
            hint=f"See what became of it: delayq show {job_id} --queue {queue}",
        ) from error


@contextmanager
def _stored_is_told(tell: Callable[[Any], None]) -> Iterator[None]:
    """What was done inside the block is told of, too, when its durability was not confirmed: scripts need the id.

    The error, and its exit code, follow.
    """
    try:
        yield
    except NotConfirmed as error:
        for done in error.done:
            tell(done)
        raise


def _target(job_id: str, queue: str) -> str:
    """How the audit log names a job."""
    return f"{queue} {job_id}"


def _one_time(when: Mapping[str, Any]) -> None:
    if when["delay"] is not None and when["at"] is not None:
        raise InvalidInput("--in and --at exclude each other.", hint="Leave out one of the two.")
    if when["at"] is None and (when["tz"] is not None or when["fold"] is not None):
        raise InvalidInput("--tz and --fold belong to --at.", hint="Say --at, or leave them out.")


def _answer(session: Session, ref: JobRef, *, as_json: bool) -> None:
    if as_json:
        session.out.json(shapes.scheduled(ref))
        return
    session.out.line(ref.id)
    over = f" over {ref.connection}" if ref.connection else ""
    session.out.note(f"{ref.outcome} in queue {ref.queue}{over}{_when(ref)}")


def _answer_cancel(
    session: Session, job_id: str, queue: str, answer: Answer, *, running: bool, as_json: bool, note: str = ""
) -> None:
    if as_json:
        session.out.json(shapes.answered(job_id, queue, answer))
        return
    session.out.line(answer)
    asked = running and answer is Answer.RUNNING
    if note := note or ("It was asked to stop." if asked else _CANCEL_NOTES.get(answer, "")):
        session.out.note(note)


def _answer_archive(session: Session, job_id: str, queue: str, answer: Answer, *, as_json: bool) -> None:
    if as_json:
        session.out.json(shapes.answered(job_id, queue, answer))
        return
    session.out.line(answer)
    if answer is Answer.ARCHIVED:
        session.out.note(f"`delayq failed retry {job_id} --queue {queue}` takes it up again.")
    elif answer is Answer.RUNNING:
        session.out.note("A running job cannot be archived.")
    elif note := _CANCEL_NOTES.get(answer):
        session.out.note(note)


def _when(ref: JobRef) -> str:
    """', runs 2026-11-21T15:00:00.000Z, in 14m 59s', or what a job without a due time does."""
    if ref.state is State.READY:
        return ", ready to run"
    if ref.state is not State.SCHEDULED or ref.due_ms is None:
        return f", {ref.state}"
    return f", runs {moment(ref.due_ms, time.time_ns() // 1_000_000)}"
