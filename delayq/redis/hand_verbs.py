"""What people do to single jobs that may be members of a batch: cancel and retry.

The script that moves the job writes what its batch must hear, as with every other end; a relay carries that. Here it is
told at once as well: the queue may have no worker, and who asks after the batch next wants to find it right. What is
told twice counts once.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import msgspec

from delayq.core import envelope as envelopes
from delayq.core import follow, followups
from delayq.core.audit import check_reason
from delayq.core.envelope import Envelope
from delayq.core.errors import BadEnvelope, DelayqError, InvalidPayload, JobNotFound, PayloadLost
from delayq.core.events import JobRetryRequested
from delayq.core.follow import Part
from delayq.core.followups import End, Note, Todo
from delayq.core.names import check_id, new_id
from delayq.core.sealing import Place, seal_data
from delayq.core.spec import Delay
from delayq.core.states import Answer, State
from delayq.core.unique import again_of
from delayq.core.views import JobInfo, JobRef
from delayq.redis.calls import produce
from delayq.redis.calls.follow import told_by
from delayq.redis.follow_verbs import FollowVerbs
from delayq.redis.placing import Way
from delayq.redis.verbs import Flow, Verbs

RETRY_READS = 5
CLONE_OF = "delayq-clone-of"
"""The header of a clone that holds the id of the job it was made from."""
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

    def retry(self, job_id: str, queue: str | None, data: object = msgspec.UNSET) -> Flow[JobRef]:
        """A failed job from the start; read, rewrite, and again when somebody was faster.

        As safe as the queue asks. `data` takes the place of its payload.

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
            if info is not None and info.state is State.FAILED and data is not msgspec.UNSET:
                fresh = self._with_data(fresh, info, data)
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

    def clone(self, job_id: str, queue: str | None, data: object, new: str | None, delay: Delay | None) -> Flow[JobRef]:
        """Schedule a copy of a job in any state, in its queue: without its chain, batch, unique key and past limits."""
        scope, info = yield from self._verbs.read(job_id, queue)
        if info is None:
            raise JobNotFound(f"No job {job_id!r} is known in queue {scope.name!r}.")
        payload = info.envelope.data if data is msgspec.UNSET and info.envelope else data
        raw = self._with_data(info.raw, info, payload, seal=False)  # which happens under the new id
        envelope = envelopes.decode(raw)
        now_ms = yield from self._verbs.server_ms()
        raw = envelopes.afresh(raw, envelope, now_ms)
        dropped = dict.fromkeys(("chain", "batch", "unique", "deadline_ms", "retry_until_ms"))
        headers = {**(envelopes.decode(raw).headers or {}), CLONE_OF: job_id}
        own_id = new_id() if new is None else check_id(new)
        raw = envelopes.rewrite(raw, **dropped, id=own_id, created_ms=now_ms, headers=headers)
        return (yield from self._verbs.push_copy(raw, info.queue, delay))

    def _with_data(self, raw: bytes, info: JobInfo, data: object, *, seal: bool = True) -> bytes:
        """The envelope with another payload. Raises `InvalidPayload`, also where a payload cannot be changed."""
        of, hint = f"The payload of the job {info.id!r} in queue {info.queue!r}", "Schedule a new job with the payload."
        if info.envelope is None or info.is_lost:
            raise InvalidPayload(f"{of} cannot be read, so it cannot be changed or copied.", hint=hint)
        if info.encrypted:
            raise InvalidPayload(f"{of} is encrypted, so it cannot be changed or copied.", hint=hint)
        if not envelopes.keeps_headers(raw):
            raise InvalidPayload(f"{of} was written by Laravel, so it cannot be changed or copied.", hint=hint)
        options = self._verbs.options
        check = envelopes.check_data if isinstance(data, bytes) else envelopes.encode_data  # bytes are JSON already
        payload = check(data, options.max_payload)  # type: ignore[arg-type]
        if seal and options.encrypts(info.name, None):
            members = seal_data(options.keyring, Place(info.id, info.name), payload)
            envelopes.within(members.data, options.max_payload, "The encrypted payload")
            return envelopes.rewrite(raw, data=members.data, encrypted=members.encrypted)
        return envelopes.rewrite(raw, data=payload)

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
