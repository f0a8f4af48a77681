"""Explains why a job has not run: derives reasons from facts about the job, its queue and the workers."""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from delayq.core.display import several
from delayq.core.errors import DelayqError
from delayq.core.outcome import SUSPECT
from delayq.core.times import format_duration, format_instant, rough_duration
from delayq.core.views import Control, JobInfo, QueueStats, WorkerInfo

MOVER_SILENT_MS: Final = 10_000
"""If no mover has served a queue for this long, no mover seems to run, because a mover serves each queue every 5 s."""


_READ_LOG: Final = "Read the log of the worker to find out why its processes died."
_STATE_WORDS: Final = {"leaving": "shutting down", "crashed": "waiting after a crash"}


class Facts(msgspec.Struct, frozen=True):
    """The facts about a job, its queue, the pause and maintenance switches, and the workers of all queues.

    `workers`: None = the list of workers cannot be read. `high_water`: maximum number of entries in the stream of a
    queue; further due jobs stay scheduled. `suspects`: jobs with at least two recoveries that children of the queue
    started less than one lease ago. Such a child takes no other jobs.
    """

    job: JobInfo
    stats: QueueStats
    control: Control
    workers: Sequence[WorkerInfo] | None
    high_water: int
    suspects: Sequence[JobInfo] = ()


class Reason(msgspec.Struct, frozen=True):
    """One reason why a job has not run.

    * `code`: a short name, which stays the same in later releases.
    * `what`: the reason in one sentence.
    * `next`: the next step for an operator; '' = no step is needed.
    """

    code: str
    what: str
    next: str = ""


def explain_job(facts: Facts) -> list[Reason]:
    """Return the reasons for the state of a job, the most important first. There is at least one reason."""
    job = facts.job
    if job.state == "failed":
        return [_failed(job)]
    if job.state == "completed":
        until = f", and is kept until {format_instant(job.forget_ms)}" if job.forget_ms is not None else ""
        return [Reason("finished", f"The job is completed{until}.")]
    if job.state == "reserved":
        return list(_reserved(facts))
    is_due_later = job.state == "scheduled" and (job.due_ms or 0) > facts.stats.now_ms
    if is_due_later:
        return [*_doomed(facts), *_waits(facts), *_switches(facts), *_workers(facts), *_locked(job)]
    hindrances = [*_switches(facts), *_workers(facts), *_stuck(facts), *_suspects(facts)]
    return [*_doomed(facts), *hindrances, *_waits(facts, is_next=not hindrances), *_locked(job)]


def _failed(job: JobInfo) -> Reason:
    if job.is_lost or job.envelope is None:
        code, what = ("payload-lost", "payload is lost") if job.is_lost else ("unreadable", "envelope cannot be read")
        return Reason(code, f"The job failed, and its {what}.", _command("failed forget", job, "deletes it"))
    why = f": {_error(job)}" if job.failure else ""
    attempts = several(job.attempts or 0, "attempt")
    return Reason("failed", f"The job failed after {attempts}{why}.", _command("failed retry", job, "runs it again"))


def _doomed(facts: Facts) -> Iterator[Reason]:
    """Yield the reasons why the job will fail as soon as a worker gets it."""
    job = facts.job
    deadline_ms = job.envelope.deadline_ms if job.envelope else None
    if job.envelope is None:
        what = "The envelope of the job cannot be read, so the job will fail when a worker gets it."
        yield Reason("unreadable", what, _command("cancel", job, "deletes it"))
    elif deadline_ms is None:
        return
    elif deadline_ms <= facts.stats.now_ms:
        what = f"The deadline of the job passed at {format_instant(deadline_ms)}, so no attempt will start."
        yield Reason("deadline-passed", what, "To run it, schedule a job with a later deadline.")
    elif job.state == "scheduled" and job.due_ms is not None and deadline_ms < job.due_ms:
        what = (
            f"The job is due at {format_instant(job.due_ms)}, after its deadline at {format_instant(deadline_ms)}, so "
            "the job will fail with DeadlinePassed and not run."
        )
        action = 'Schedule the job again with a later deadline: cancel it first, or use `on_conflict="replace"`.'
        yield Reason("deadline-before-due", what, action)


def _locked(job: JobInfo) -> Iterator[Reason]:
    """Yield the reason why an encrypted payload cannot be read with the keys of this program."""
    try:
        _ = job.data if job.is_encrypted else None
    except DelayqError as error:
        yield Reason("not-decrypted", error.message, error.hint or "Cancel the job, and schedule it again.")


def _reserved(facts: Facts) -> Iterator[Reason]:
    job, lease_ms = facts.job, facts.stats.lease_ms
    idle_ms = job.idle_ms or 0
    if not job.consumer:
        yield Reason(
            "acknowledged",
            "A consumer acknowledged the job with a plain XACK.",
            "In its next check, a janitor settles the job, or delivers it again if the acknowledgement is in doubt.",
        )
    elif lease_ms and idle_ms > lease_ms / 2:
        what = (
            f"{job.consumer} has the job, but has not renewed the lease for {rough_duration(idle_ms)}. A lease lasts "
            f"{format_duration(lease_ms)}. This consumer has probably died."
        )
        start = f"Start a worker: `delayq work --app MODULE --queue {job.queue}`, or `delayq move`."
        wait = rough_duration(max(lease_ms - idle_ms, 0) + lease_ms // 3)
        visit = f"a mover last served the queue {rough_duration(_mover_age_ms(facts.stats))} ago."
        again = f"If a janitor runs, the job is delivered again in about {wait}. Janitors run beside movers: {visit}"
        yield Reason("lease-silent", what, start if _is_mover_silent(facts.stats) else again)
    else:
        yield Reason("running", f"{job.consumer} has the job, and renewed its lease {rough_duration(idle_ms)} ago.")
    if job.recoveries >= SUSPECT:
        what = (
            f"The worker of this job vanished {job.recoveries} times, and the job may be the cause. Therefore the job "
            "should run"
        )
        wait = f"alone, and first waits for the other jobs of its process, for up to {format_duration(lease_ms)}."
        yield Reason("suspect", f"{what} {wait}", _READ_LOG)
    if job.cancel_asked_ms is not None:
        yield Reason("stopping", f"At {format_instant(job.cancel_asked_ms)}, a cancel asked the job to stop.")


def _switches(facts: Facts) -> Iterator[Reason]:
    """Yield a reason for each switch of operators that stops the queue."""
    control, queue = facts.control, facts.job.queue
    if control.maintenance_until_ms is not None:
        what = f"Maintenance is on{_why(control.reason)}{_until(control.maintenance_until_ms)}."
        yield Reason("maintenance", what, "`delayq maintenance off` ends the maintenance.")
    if control.paused_until_ms is not None:
        what = f"All workers are paused{_why(control.paused_reason)}{_until(control.paused_until_ms)}."
        yield Reason("all-paused", what, "`delayq resume --all` ends the pause.")
    if facts.stats.paused_until_ms is not None:
        what = f"The queue {queue} is paused{_until(facts.stats.paused_until_ms)}."
        yield Reason("queue-paused", what, f"`delayq resume {queue}` ends the pause.")


def _workers(facts: Facts) -> Iterator[Reason]:
    queue = facts.job.queue
    if facts.workers is None:
        return
    serving = [worker for worker in facts.workers if queue in worker.queues]
    states = {worker.about.get("state") for worker in serving}
    start = f"Start a worker: `delayq work --app MODULE --queue {queue}`."
    if not serving:
        yield Reason("no-worker", f"No worker of delayq serves the queue {queue}.", start)
    elif states == {"crashed"}:
        what = f"All child processes of the workers of the queue {queue} crashed. Their replacements start within 30 s."
        yield Reason("workers-crashed", what, "Read the log of the worker to find the cause.")
    elif states.isdisjoint(("working", "idle")):
        shown = " or ".join(sorted(_STATE_WORDS.get(str(state), str(state)) for state in states))
        what = f"No worker of the queue {queue} accepts jobs: all of them are {shown}."
        resume = "Send SIGCONT to the paused workers, or start another worker."
        yield Reason("workers-idle", what, resume if "paused" in states else start)


def _stuck(facts: Facts) -> Iterator[Reason]:
    """Yield the reason why a due job is not appended to the stream."""
    job, stats = facts.job, facts.stats
    if job.state != "scheduled":
        return
    in_stream = stats.ready + stats.reserved
    if in_stream >= facts.high_water:
        yield Reason(
            "high-water",
            f"The stream of the queue is full: it has {in_stream:,} jobs, and the limit is {facts.high_water:,}.",
            "Start more workers, or raise DELAYQ_HIGH_WATER.",
        )
    elif _is_mover_silent(stats):
        since = f"for {rough_duration(_mover_age_ms(stats))}" if stats.mover_tick_ms else "so far"
        what = f"No mover has served the queue {job.queue} {since}."
        yield Reason(
            "no-mover", what, f"Start a mover: `delayq work --app MODULE --queue {job.queue}`, or `delayq move`."
        )


def _suspects(facts: Facts) -> Iterator[Reason]:
    """Yield a reason for each suspect that keeps a child of the queue from taking a ready job."""
    lease = format_duration(facts.stats.lease_ms)
    for job in facts.suspects if facts.job.state == "ready" else ():
        suspect = f"the job {job.id} of the queue {job.queue}, whose worker vanished {job.recoveries} times"
        what = f"{job.consumer} takes no other jobs for up to {lease}, because it runs {suspect}."
        yield Reason("waits-for-suspect", what, _READ_LOG)


def _is_mover_silent(stats: QueueStats) -> bool:
    return _mover_age_ms(stats) > MOVER_SILENT_MS


def _mover_age_ms(stats: QueueStats) -> int:
    return max(stats.now_ms - stats.mover_tick_ms, 0)


def _waits(facts: Facts, *, is_next: bool = True) -> Iterator[Reason]:
    """Yield the reason that lies in the job itself, such as its due time. `is_next`: no other reason stops the job."""
    job, stats = facts.job, facts.stats
    due_ms = job.due_ms or 0
    if job.state == "ready":
        announced = sum(n for worker in facts.workers or () if isinstance(n := worker.about.get("runs"), int))
        held = max(stats.reserved, announced)  # both may lag: workers announce running jobs only every few seconds
        what = f"The job waits for its turn. The queue {job.queue} has {several(stats.ready, 'ready job')}"
        yield Reason("ready", f"{what} and up to {several(held, 'reserved job')}.")
        return
    left_ms = due_ms - stats.now_ms
    when = f"in {rough_duration(left_ms)}, at {format_instant(due_ms)}" if left_ms > 0 else "now"
    if job.waits_for_code:
        unknown = f"A worker did not know the job name {job.name!r} or a field of the payload"
        what = job.failure.message.removesuffix(".") if job.failure else unknown
        yield Reason(
            "unknown-name",
            f"{what}. The next check is due {when}.",
            "Start a worker whose --app knows the job name and all fields of the payload. If the payload is wrong, "
            "cancel the job.",
        )
    elif job.refusals is not None:
        times = several(job.refusals.count, "time")
        what = f"The limit {job.refusals.limit} refused the job {times} in a row, which costs no attempt."
        yield Reason(
            "limit", f"{what} The job asks again {when}.", "`delayq limit list` shows how many jobs each limit counts."
        )
    elif job.attempts:
        why = f": {_error(job)}" if job.failure else ""
        yield Reason("retry", f"Attempt {job.attempts} did not succeed{why}. The next attempt is due {when}.")
    elif left_ms > 0:
        yield Reason("due-later", f"The job is due {when}.", _command("run-now", job, "runs it at once"))
    else:
        what = f"The job has been due for {rough_duration(-left_ms)}"
        served = f", and waits for a mover. A mover last served the queue {rough_duration(_mover_age_ms(stats))} ago."
        yield Reason("due", what + (served if is_next else "."))


def _error(job: JobInfo) -> str:
    failure = job.failure
    return f"{failure.type}: {failure.message}".removesuffix(".") if failure else ""


def _command(verb: str, job: JobInfo, does: str) -> str:
    return f"`delayq {verb} {job.id} --queue {job.queue}` {does}."


def _until(until_ms: int) -> str:
    return f" until {format_instant(until_ms)}" if until_ms else ""


def _why(reason: str) -> str:
    return f" ({reason})" if reason else ""
