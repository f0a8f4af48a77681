"""The jobs that follow an ended job. The relay reads the job-end record, and this module decides which jobs to send."""

import re
from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from delayq.core import failure as failures
from delayq.core.chain import BatchPlan, Chain, Link, Membership, id_of, job_of, read_chain, read_membership
from delayq.core.envelope import ABSENT
from delayq.core.job_spec import NewJob

NoteWord = Literal["done", "failed", "skipped", "next"]
"""An event of a member, for its batch. `next`: a link of the member is done, and another link follows."""

Duty = Literal["before", "catch", "cancel", "then", "finally"]
"""An event of a batch that requires an action, which is done once.

"cancel" means to cancel the jobs of pending members. Every other duty means to send the callback of this name.
"""

MAX_HEADER: Final = 1_000
"""Maximum length of the message in a header of a `catch` job, in characters."""


class EndedJob(msgspec.Struct, frozen=True, gc=False):
    """The parts of an envelope that the relay needs after the end of a job.

    All fields are optional, so that the relay can read these parts even if a worker could not read the envelope.
    """

    id: Any = ""
    chain: msgspec.Raw = ABSENT
    batch: msgspec.Raw = ABSENT


class Note(msgspec.Struct, frozen=True, gc=False):
    """One row for `batch_note.lua`.

    `job` has these parts, with a space between them:

    * with the word "failed": queue and id of the job that failed
    * with the word "next": queue of the next job, number of links from the next job on, and id of the next job; '' if
      the next link is a batch
    * with any other word: ''
    """

    batch: str
    member: str
    word: NoteWord
    job: str = ""


class FollowUps(msgspec.Struct, frozen=True, gc=False):
    """The consequences of the end of a job.

    `note`: the row for the batch of the job; None = the job has no batch, or is a callback. `jobs`: the jobs to send.
    `batch`: the batch to start, if the next link of the chain is a batch; otherwise None. `failed`: the headers for
    `catch` jobs, which describe the failure.
    """

    note: Note | None = None
    jobs: list[NewJob] = []
    batch: BatchPlan | None = None
    failed: Mapping[str, str] = {}


_decode: Final = msgspec.json.Decoder(EndedJob).decode

_TEXT: Final = rb'"(?:[^"\\]|\\.)*"'
_ID: Final = re.compile(rb'"id":(%b)' % _TEXT)
_MEMBERSHIP: Final = re.compile(rb'"batch":(\{"id":%b,"member":%b\})' % (_TEXT, _TEXT))


def follow_ups(ended: str, envelope: bytes, failure: bytes, *, queue: str, now_ms: int) -> FollowUps:
    """Return the consequences of the end of a job.

    `ended`: "done", "failed" or "cancelled". `envelope`: the envelope of the job. `failure`: JSON, or b''. `queue`: the
    queue of the job. `now_ms`: the time of the end.

    Raises msgspec.MsgspecError if the envelope cannot be read, and UnreadableEnvelope if a link cannot be read.
    """
    job = _decode(envelope)
    chain = read_chain(job.chain)
    membership = read_membership(job.batch)
    member = membership if membership is not None and membership.member else None
    if ended == "done":
        return _after_success(chain, member, now_ms)
    if ended == "failed":
        headers = failure_headers(job.id, queue, failure)
        caught = [job_of(link, now_ms=now_ms, headers=headers) for link in chain.catch]
        return FollowUps(_note(member, "failed", f"{queue} {job.id}"), caught, failed=headers)
    return FollowUps(_note(member, "skipped"))


def follow_ups_of_unreadable(ended: str, envelope: bytes, failure: bytes, *, queue: str) -> FollowUps:
    """Return the consequences of the end of a job if its envelope or its next link cannot be read.

    A member of a batch counts as failed, or as skipped if the job was cancelled. The text of the envelope is searched
    for the membership. If no membership is found, nothing follows the job.
    """
    found = _MEMBERSHIP.findall(envelope)
    try:
        member = read_membership(msgspec.Raw(found[-1])) if found else None
        job_id = msgspec.json.decode(_ID.findall(envelope)[0], type=str) if member else ""
    except (msgspec.MsgspecError, UnicodeError):
        member = None
    if member is None:
        return FollowUps()
    if ended == "cancelled":
        return FollowUps(_note(member, "skipped"))
    return FollowUps(_note(member, "failed", f"{queue} {job_id}"), failed=failure_headers(job_id, queue, failure))


def _after_success(chain: Chain, member: Membership | None, now_ms: int) -> FollowUps:
    if not chain.links:
        return FollowUps(_note(member, "done"))
    job, batch = next_link(chain, now_ms=now_ms, member=member)
    if job is None:
        return FollowUps(_note(member, "next"), batch=batch)
    return FollowUps(_note(member, "next", f"{job.queue} {len(chain.links)} {job.id}"), [job])


def next_link(
    chain: Chain, *, now_ms: int, member: Membership | None = None, when: str | None = None
) -> tuple[NewJob | None, BatchPlan | None]:
    """Return the first link of a chain, as a job or as a batch that continues the chain. `when`: as for `job_of`."""
    link, *rest = chain.links
    later = Chain(rest, chain.catch)
    if link.batch is not None:
        return None, msgspec.structs.replace(link.batch, after=later)
    return job_of(link, now_ms=now_ms, when=when, chain=later, batch=member), None


def member_jobs(plan: BatchPlan, *, now_ms: int, when_now: bool = False) -> list[NewJob]:
    """Return the first job of each member of a batch.

    `when_now`: True = delays count from the time of the server; False = delays count from `now_ms`.
    """
    jobs = []
    for member in plan.members:
        link, *rest = member.links
        when = f"+{link.delay_ms}" if when_now else None
        of_batch = Membership(plan.id, id_of(link))
        jobs.append(job_of(link, now_ms=now_ms, when=when, chain=Chain(rest, member.catch), batch=of_batch))
    return jobs


def jobs_of_duty(
    plan: BatchPlan, duty: Duty, *, is_cancelled: bool, failed: Mapping[str, str], now_ms: int
) -> tuple[list[NewJob], BatchPlan | None]:
    """Return the jobs to send at an event of a batch. If the batch is a link of a chain, the chain goes on or ends.

    The chain goes on when all members have succeeded. If the batch allows failures, the chain goes on when all members
    have ended, unless the batch was cancelled. If a member fails in a batch that allows no failures, the `catch` jobs
    of the chain are sent.
    """
    links: Mapping[Any, Any] = {
        "before": plan.before,
        "catch": plan.catch,
        "then": plan.then,
        "finally": plan.finally_,
    }
    headers = failed if duty == "catch" else {}
    callbacks = [*links.get(duty, ())]
    after = plan.after or Chain()
    if duty == "catch" and not plan.allow_failures:
        callbacks += after.catch
    jobs = [_callback(link, plan, now_ms, headers) for link in callbacks]
    goes_on = duty == "finally" and not is_cancelled if plan.allow_failures else duty == "then"
    if goes_on and after.links:
        job, batch = next_link(after, now_ms=now_ms)
        return [*jobs, *([job] if job is not None else [])], batch
    return jobs, None


def failure_headers(job_id: str, queue: str, failure: bytes) -> dict[str, str]:
    """Return the headers for `catch` jobs, which describe the failure of another job."""
    described = failures.decode(failure)
    return {
        "delayq-failed-id": job_id,
        "delayq-failed-queue": queue,
        "delayq-failed-error": described.type if described else "",
        "delayq-failed-message": described.message[:MAX_HEADER] if described else "",
    }


def _callback(link: Link, plan: BatchPlan, now_ms: int, headers: Mapping[str, str]) -> NewJob:
    return job_of(link, now_ms=now_ms, batch=Membership(plan.id), headers=headers)


def _note(member: Membership | None, word: NoteWord, job: str = "") -> Note | None:
    return None if member is None else Note(member.id, member.member, word, job)
