"""What producers call: schedule and what may still be changed before a job runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from delayq.core import failure as failures
from delayq.core.debounce import Quiet
from delayq.core.failure import Failure
from delayq.core.shards import Layout, read_layout
from delayq.core.spec import AT_ONCE, Prepared
from delayq.core.states import Answer, OnConflict, State
from delayq.core.views import JobRef
from delayq.redis.calls.call import ONCE_MS, Argument, Call, Nature, Scope, call, number, placed, text
from delayq.redis.keys import Globals

MAX_JOBS = 500
# A schedule does more for each job than other scripts do; so many keep Redis for well below 10 ms.
CHUNK = 250
MAX_BYTES = 1_000_000
# A job due within this time could be run and forgotten before a resent command arrives, which would then make it
# anew. So its command carries a token; one due later is safe without, because its id is still taken.
SOON_MS = 15_000

_SCRIPTS = {
    OnConflict.KEEP: ("schedule", Answer.KEPT),
    OnConflict.ERROR: ("schedule", Answer.CONFLICT),
    OnConflict.REPLACE: ("replace", Answer.REPLACED),
    OnConflict.POSTPONE: ("replace", Answer.POSTPONED),
}
_ANSWERS = {answer.value.encode(): answer for answer in Answer}
_STATES = {state.value.encode(): state for state in State}


class Scheduled(NamedTuple):
    """What became of a batch: a reference for each job, and whether the queue was new.

    `moved`: nothing was done, because the shard knows this newer layout. A job that was only asked for, and is not
    there, has the outcome `unknown`. The short way answers without references when it did nothing.
    """

    refs: list[JobRef]
    new_queue: bool
    moved: Layout | None = None

    @property
    def undone(self) -> bool:
        """Whether the long way has to be asked."""
        return not self.refs and self.moved is None


class Outcome(NamedTuple):
    """The answer to a verb on one job."""

    answer: Answer
    due_ms: int | None = None
    owner: str = ""


NOT_STORED = (Answer.CONFLICT, Answer.UNKNOWN)
"""Of a job that is not stored by the call that asked for it: it was refused, or only asked for."""


def stored(scheduled: Scheduled) -> bool:
    """Whether any of these jobs is stored now; a refused one is not."""
    return any(ref.outcome not in NOT_STORED for ref in scheduled.refs)


def moved(outcome: Outcome) -> bool:
    """Whether a waiting job has another due time now."""
    return outcome.answer in (Answer.RESCHEDULED, Answer.READY, Answer.SCHEDULED)


def chunks(jobs: Iterable[Prepared]) -> Iterator[list[Prepared]]:
    """Batches for one script call each: at most 250 jobs and 1 MB, but one at least. A debounced job has its own."""
    batch: list[Prepared] = []
    size = 0
    for job in jobs:
        length = len(job.envelope)
        if batch and (len(batch) == CHUNK or size + length > MAX_BYTES or job.quiet or batch[-1].quiet):
            yield batch
            batch, size = [], 0
        batch.append(job)
        size += length
    if batch:
        yield batch


def by_queue(jobs: Sequence[Prepared]) -> list[tuple[str, list[int]]]:
    """The places of each queue's jobs among all, queues by name."""
    places: dict[str, list[int]] = {}
    for n, job in enumerate(jobs):
        places.setdefault(job.queue, []).append(n)
    return sorted(places.items())


def schedule(
    scope: Scope, jobs: Sequence[Prepared], on_conflict: OnConflict, token: str, *, once_ms: int = 0
) -> Call[Scheduled]:
    """Put jobs of one queue (one chunk) in their place. `token` makes a resend answer as the first time.

    It counts for `once_ms`; 0: for as long as this client may resend, and only where a resend would do harm.
    """
    options = scope.options
    if jobs and (quiet := jobs[0].quiet):
        return debounce(scope, jobs[0], quiet, token)
    soon = jobs and jobs[0].when == AT_ONCE
    once = token if soon or once_ms or on_conflict is OnConflict.ERROR or _any_soon(jobs) else ""
    once_ms = (once_ms or ONCE_MS) if once else 0
    script, word = _SCRIPTS[on_conflict]
    args: list[Argument] = [scope.now, word, scope.queue, scope.wake]
    if script == "schedule":
        args.append(options.high_water)
    args += (options.lease_ms, once_ms, scope.shards)
    for job in jobs:
        args += (job.id, job.envelope, job.when, job.digest)
    return call(script, scope, args, lambda reply: _scheduled(reply, jobs), once=once)


def later(scope: Scope, jobs: Sequence[Prepared], on_conflict: OnConflict) -> Call[Scheduled] | None:
    """Put jobs of one queue (one chunk) where they wait, the short way. None: they are none for it.

    When its answer is `undone`, `schedule` has to be asked. It is for jobs that need nothing but a place: due later,
    kept if an id is taken, without a lock, and in a shard where they are not just looked for.
    """
    if on_conflict is not OnConflict.KEEP or scope.asks or _any_soon(jobs):
        return None
    args: list[Argument] = [scope.now, scope.queue, scope.wake, scope.shards]
    for job in jobs:
        if job.digest or job.quiet:
            return None
        args += (job.id, job.envelope, job.when)
    loaded, keys = placed("later", scope.options.prefix, scope.queue)
    return Call(loaded, keys, tuple(args), partial(_waiting, jobs))


def _waiting(jobs: Sequence[Prepared], reply: bytes | None) -> Scheduled:
    if reply is None:
        return Scheduled([], False)
    now_ms = int(reply)
    dues = {when: now_ms + int(when) for when in {job.when for job in jobs}}  # nearly all jobs say one and the same
    wait, created = State.SCHEDULED, Answer.CREATED
    return Scheduled([JobRef(job.id, job.queue, wait, dues[job.when], created, job.name) for job in jobs], False)


def _any_soon(jobs: Sequence[Prepared]) -> bool:
    return _soon(jobs[0].when) if len(jobs) == 1 else any(map(_soon, {job.when for job in jobs}))


def _soon(when: str) -> bool:
    return when[0] != "+" or int(when) < SOON_MS


def _scheduled(reply: list[bytes], jobs: Sequence[Prepared]) -> Scheduled:
    if reply[0] == b"moved":
        return Scheduled([], False, read_layout(text(reply[1])))
    refs = []
    seen, due_ms = b"", None  # most jobs of a batch fall due at the same time
    words = iter(reply)
    new = next(words) == b"1"
    for job, word, state, due, holder in zip(jobs, words, words, words, words, strict=True):
        outcome, owner = _ANSWERS[word], job.id
        if outcome is not Answer.CREATED:
            owner = text(holder)
            if outcome is Answer.KEPT and owner == job.id and not job.own_id:
                outcome = Answer.CREATED  # an id made for this call can only be taken by an earlier send of it
        if due != seen:
            seen, due_ms = due, int(due) if len(due) < 16 and due.isdigit() else number(due)
        refs.append(JobRef(owner, job.queue, _STATES.get(state, State.SCHEDULED), due_ms, outcome, job.name))
    return Scheduled(refs, new)


def debounce(scope: Scope, job: Prepared, quiet: Quiet, token: str) -> Call[Scheduled]:
    """Put a job in the place of the one with the same key that has not started."""
    args: list[Argument] = [scope.now, scope.queue, scope.wake, scope.options.lease_ms, ONCE_MS]
    args += (job.id, job.envelope, *quiet, job.digest, scope.shards)
    return call("debounce", scope, args, lambda reply: _debounced(reply, job), once=token)


def _debounced(reply: list[bytes], job: Prepared) -> Scheduled:
    if reply[0] == b"moved":
        return Scheduled([], False, read_layout(text(reply[1])))
    new, word, due, replaced = reply
    ref = JobRef(job.id, job.queue, State.SCHEDULED, number(due), _ANSWERS[word], job.name, text(replaced))
    return Scheduled([ref], new == b"1")


class Cancelled(NamedTuple):
    """How a cancel or an archive went. `job`: the envelope of a job that ended so, if anything follows its end."""

    answer: Answer
    job: bytes = b""


def cancel(scope: Scope, job_id: str, *, running: bool, token: str) -> Call[Answer]:
    """Stop a job that nobody has taken; with `running`, ask a running one to stop."""
    return call("cancel", scope, _cancel(scope, job_id, running, ""), lambda reply: _ANSWERS[reply[0]], once=token)


def cancel_only(scope: Scope, job_id: str, *, running: bool, token: str, only: str) -> Call[Cancelled]:
    """As `cancel`, and what follows. `only`: what its envelope must hold, else it is not the job that is meant."""
    return call("cancel", scope, _cancel(scope, job_id, running, only), _cancelled, once=token)


def _cancel(scope: Scope, job_id: str, running: bool, only: str) -> list[Argument]:
    channel = Globals(scope.options.prefix).cancels
    return [scope.now, job_id, "1" if running else "0", ONCE_MS, scope.queue, channel, only, scope.wake]


def _cancelled(reply: list[Any]) -> Cancelled:
    return Cancelled(_ANSWERS[reply[0]], reply[1] if len(reply) > 1 else b"")


def archive(scope: Scope, job_id: str, reason: str, *, token: str) -> Call[Cancelled]:
    """Put a job that nobody has taken among the failed."""
    failure = failures.encode(Failure("Archived", reason)).removesuffix(b"}")
    args: list[Argument] = [scope.now, job_id, failure, ONCE_MS, scope.queue, scope.wake]
    return call("archive", scope, args, _cancelled, once=token)


def reschedule(scope: Scope, job_id: str, when: str) -> Call[Outcome]:
    """Give a waiting job a new due time."""
    return call("reschedule", scope, [scope.now, scope.queue, scope.wake, job_id, when], _outcome)


def run_now(scope: Scope, job_id: str) -> Call[Outcome]:
    """Let a waiting job wait no longer. Not resent: the second send would find the job running."""
    args: list[Argument] = [scope.now, scope.queue, scope.wake, scope.options.high_water, job_id]
    return call("run_now", scope, args, _outcome, nature=Nature.ONCE)


def _outcome(reply: list[Any]) -> Outcome:
    return Outcome(_ANSWERS[reply[0]], number(reply[1]), text(reply[2]) if len(reply) > 2 else "")


def retry(
    scope: Scope, job_id: str, fingerprint: str, envelope: bytes, digest: str, todo: bytes = b""
) -> Call[Outcome]:
    """Give a failed job all its tries again. Not resent: the second send would find it waiting.

    `todo` is what its batch must hear of it.
    """
    args: list[Argument] = [scope.now, scope.queue, scope.wake, job_id, fingerprint, envelope, digest, todo]
    return call("retry", scope, args, _outcome, nature=Nature.ONCE)


def forget(scope: Scope, job_ids: Sequence[str]) -> Call[list[Answer]]:
    """Drop failed or completed jobs."""
    return call("forget", scope, list(job_ids), lambda reply: [_ANSWERS[word] for word in reply], nature=Nature.ONCE)
