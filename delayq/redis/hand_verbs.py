"""What people do to single jobs that may be members of a batch: cancel and retry.

The script that moves the job writes what its batch must hear, as with every other end; a relay carries that. Here it is
told at once as well: the queue may have no worker, and who asks after the batch next wants to find it right. What is
told twice counts once.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from delayq.core import envelope as envelopes
from delayq.core import follow, followups
from delayq.core.audit import check_reason
from delayq.core.envelope import Envelope
from delayq.core.errors import BadEnvelope, DelayqError, PayloadLost
from delayq.core.events import JobRetryRequested
from delayq.core.follow import Part
from delayq.core.followups import End, Note, Todo
from delayq.core.states import Answer, State
from delayq.core.unique import again_of
from delayq.core.views import JobInfo, JobRef
from delayq.redis.calls import produce
from delayq.redis.calls.follow import told_by
from delayq.redis.follow_verbs import FollowVerbs
from delayq.redis.placing import Way
from delayq.redis.verbs import Flow, Verbs

RETRY_READS = 5
ARCHIVED = "It was archived by hand."

log = logging.getLogger("delayq.redis")


class HandVerbs:
    """These verbs on one prefix."""

    def __init__(self, verbs: Verbs) -> None:
        self._verbs = verbs
        self._follow = FollowVerbs(verbs)

    def cancel(self, job_id: str, queue: str | None, *, running: bool, durability: str | None = None) -> Flow[Answer]:
        """As `Verbs.cancel`; and its batch hears of it."""
        done = yield from self._verbs.cancelled(job_id, queue, running=running, durability=durability)
        if done.job:
            yield from self._tell(_heard(done.job, End.CANCELLED))
        return done.answer

    def archive(self, job_id: str, queue: str | None, *, reason: str, durability: str | None = None) -> Flow[Answer]:
        """Put a waiting job among the failed; what follows is what follows a failure, and its batch hears of it."""
        done = yield from self._verbs.archived(job_id, queue, check_reason(reason or ARCHIVED), durability)
        if done.job:
            yield from self._tell(_heard(done.job, End.FAILED))
        return done.answer

    def retry(self, job_id: str, queue: str | None) -> Flow[JobRef]:
        """A failed job from the start; read, rewrite, and again when somebody was faster.

        As safe as the queue asks.

        One that is a member of a batch says so in its envelope, and which cancels do not hold for it: it may start
        before the batch has heard.
        """
        outcome, name, scope = produce.Outcome(Answer.CHANGED), "", self._verbs.scope(queue)
        todo: Todo = []
        way = Way(self._verbs.durable)
        for _ in range(RETRY_READS):
            scope, info = yield from self._verbs.read(job_id, queue)
            if info is not None and info.is_lost and info.state is State.FAILED:
                raise PayloadLost(
                    f"The payload of the job {job_id!r} in queue {scope.name!r} is lost, so it cannot be retried.",
                    hint="Forget it (delayq failed forget) and schedule the job anew under the same id.",
                )
            raw, envelope = (info.raw, info.envelope) if info else (b"", None)
            name, fresh, digest, todo = envelope.name if envelope else "", raw, "", []
            if envelope is not None:
                part = yield from self._part(info, envelope)
                todo, digest = follow.taken_up(part) if part else [], again_of(envelope.unique)
                fresh = envelopes.afresh(raw, envelope, (yield from self._verbs.server_ms()))
                fresh = envelopes.rewrite(fresh, chain=part.chain) if part else fresh
            prints = envelopes.fingerprint(raw)
            way.wanted = yield from self._verbs.durable.wanted(self._verbs.shard(scope.name), None)
            ask = produce.retry(scope, job_id, prints, fresh, digest, followups.encode_todo(todo))
            outcome = yield from way.one(scope, ask, produce.moved)
            if outcome.answer is not Answer.CHANGED:
                break
        if queue is None and outcome.answer is Answer.UNKNOWN:
            yield from self._verbs.elsewhere(job_id)
        ref = self._verbs.ref(outcome, job_id, scope.name, name)
        self._verbs.tell(JobRetryRequested(job_id, name, scope.name))
        yield from self._tell(todo)
        way.check([ref])
        return ref

    def _part(self, info: JobInfo | None, envelope: Envelope) -> Flow[Part | None]:
        """Its part when it runs again. Its batch has heard of the failure by then, and sent what is due of it."""
        part = follow.readable_part(envelope)  # of one that nobody can read nobody can say what followed it
        if part is None or info is None or info.state is not State.FAILED:
            return None
        cancels = 0
        if (note := follow.note_of(part, End.FAILED)) is not None:
            standing = yield from self._follow.note(note.batch, told_by(note))
            cancels = standing.cancels if standing is not None else 0
        return follow.retried(part, cancels)

    def _tell(self, todo: Sequence[object]) -> Flow[None]:
        """Tell batches what became of a member. Nobody is in trouble when that fails: a relay tells them too."""
        for note in todo:
            if isinstance(note, Note):
                try:
                    yield from self._follow.note(note.batch, told_by(note))
                except DelayqError as error:
                    log.warning("the batch %s will hear of %s from a relay: %s", note.batch, note.members[0][0], error)


def _heard(job: bytes, end: End) -> Todo:
    """What follows a job that ended before it ran; nothing of one that cannot be read."""
    try:
        part = follow.part_of(job)
    except BadEnvelope:
        return []
    note = follow.note_of(part, end) if part else None
    return [note] if note else []
