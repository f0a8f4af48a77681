"""From the answer of a verb to the error a user of delayq sees. The one place that knows both."""

from __future__ import annotations

from delayq.core.errors import (
    Conflict,
    DelayqError,
    FoundElsewhere,
    JobFinished,
    JobHasFailed,
    JobNotFailed,
    JobNotFound,
    JobRunning,
    NotAllSearched,
)
from delayq.core.spec import Prepared
from delayq.core.states import Answer
from delayq.core.views import JobRef


def refusal(answer: Answer, job_id: str, queue: str, *, owner: str = "") -> DelayqError | None:
    """The error an answer stands for; None for an answer that is none."""
    job = f"The job {job_id!r} in queue {queue!r}"
    match answer:
        case Answer.UNKNOWN:
            return JobNotFound(
                f"No job {job_id!r} is known in queue {queue!r}.",
                hint="It may have been done already, or lie in another queue (--queue).",
            )
        case Answer.RUNNING:
            return JobRunning(f"{job} is running.")
        case Answer.FINISHED:
            return JobFinished(f"{job} has finished.")
        case Answer.FAILED:
            return JobHasFailed(f"{job} has failed.", hint="Use retry to run it again.")
        case Answer.REFUSED:
            return JobNotFailed(f"{job} waits or runs, or has finished; this is for jobs that are over.")
        case Answer.CONFLICT:
            return Conflict(f"{job} collides with {owner!r}, which is already there." if owner else f"{job} exists.")
        case Answer.CHANGED:
            return Conflict(f"{job} was changed by somebody else at the same time.", hint="Try again.")
        case _:
            return None


def found_elsewhere(
    job_id: str, asked: str, queues: tuple[str, ...], done: tuple[object, ...], advice: str = ""
) -> FoundElsewhere:
    """The error for an id that the queue `asked` does not have, and `queues` do.

    `advice` is the call that works, with `{queue}` in it; '': the same call with the queue named.
    """
    first, *others = queues
    where = f"queues {', '.join(map(repr, queues))} have one" if others else f"queue {first!r} has one"
    return FoundElsewhere(
        f"No job {job_id!r} is known in queue {asked!r}, but {where}; nothing was done to it.",
        hint=advice.replace("{queue}", first) if advice else f'Name the queue: queue="{first}" (--queue {first}).',
        job_id=job_id,
        queues=queues,
        done=done,
    )


def not_all_searched(job_id: str, asked: str, left: int, done: tuple[object, ...], advice: str = "") -> NotAllSearched:
    """The error for an id that was found in no queue, when `left` queues were not searched."""
    return NotAllSearched(
        f"No job {job_id!r} is known in queue {asked!r}, and {left:,} other queues were not searched.",
        hint=advice.replace("{queue}", "...") if advice else 'Name the queue: queue="..." (--queue NAME).',
        job_id=job_id,
        done=done,
    )


def accepted(ref: JobRef, job: Prepared) -> JobRef:
    """What became of one job that was scheduled by itself; raises when that is a refusal."""
    if isinstance(ref.outcome, Answer) and ref.outcome is not Answer.CREATED:
        mine = job.id if job.own_id else ref.id
        if error := refusal(ref.outcome, mine, ref.queue, owner="" if ref.id == mine else ref.id):
            raise error
    return ref
