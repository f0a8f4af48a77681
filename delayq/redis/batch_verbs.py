"""The verbs on batches, without I/O: what producers and operators ask. As `verbs`, and run by the same shells."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final, TypeVar

from delayq.core import followups
from delayq.core.audit import Deed, check_reason
from delayq.core.batches import BatchInfo
from delayq.core.errors import BackendDamaged, BadEnvelope, BatchNotFound, Conflict, JobNotFound
from delayq.core.followups import Link, Plan
from delayq.core.names import check_batch_id
from delayq.core.shown import shown
from delayq.redis.adding import Written
from delayq.redis.audit import Audit
from delayq.redis.calls import follow as calls
from delayq.redis.calls.call import Command, hash_page, number, text
from delayq.redis.calls.follow import Standing, counted
from delayq.redis.follow_verbs import FollowVerbs
from delayq.redis.hand_verbs import HandVerbs
from delayq.redis.keys import Globals, Keys
from delayq.redis.taken_ids import refuse_taken
from delayq.redis.verbs import Flow, Verbs

T = TypeVar("T")
log = logging.getLogger("delayq.batches")

UNREADABLE: Final = (BackendDamaged, BadEnvelope)
"""What one batch may be without hiding the others: keys of another type, a plan that is none."""


class BatchVerbs:
    """What can be done with batches. Each raises `BatchNotFound` for one that is not there."""

    def __init__(self, verbs: Verbs) -> None:
        self._verbs = verbs
        self._follow = FollowVerbs(verbs)
        self._by_hand = HandVerbs(verbs)
        self._audit = Audit(verbs)

    def open(self, plan: Plan) -> Flow[BatchInfo]:
        """Begin a batch. Raises `Conflict` when its id, or a member's, is somebody else's; nothing was sent then."""
        yield from refuse_taken(self._verbs, plan.id, plan.members)
        return _info(plan.id, (yield from self._follow.open(plan)))

    def get(self, batch: str) -> Flow[BatchInfo]:
        """A batch as it stands; what is due of it and was never sent is sent now."""
        return _info(batch, (yield from self._follow.note(check_batch_id(batch))))

    def add(self, batch: str, members: Sequence[Link]) -> Flow[BatchInfo]:
        """Let a batch have more members. Raises `Conflict` as `open`, and for one that has ended or was cancelled.

        What somebody begins to add who is killed on the way, a relay adds.
        """
        yield from refuse_taken(self._verbs, check_batch_id(batch), members)
        written = Written(self._verbs, batch, members)
        yield from written.write()
        answer = yield from self._follow.add(batch, members)
        yield from written.done()
        if answer in ("finished", "cancelled"):
            said = "has finished" if answer == "finished" else "was cancelled"
            raise Conflict(f"The batch {batch!r} {said}, so it takes no more jobs.", hint="Dispatch another batch.")
        return _info(batch, None) if answer == "unknown" else (yield from self.get(batch))

    def cancel(self, batch: str, reason: str | None = None) -> Flow[BatchInfo]:
        """Let nothing of it start any more: what waits is cancelled, what runs goes on. With a reason, on record."""
        act = self._follow.note(check_batch_id(batch), cancel=True)
        return _info(batch, (yield from self._on_record("batch cancel", batch, reason, act)))

    def retry(self, batch: str, reason: str | None = None) -> Flow[int]:
        """Retry every member that failed; answers how many. With a reason, on record."""
        count = yield from self._on_record("batch retry", batch, reason, self._retry(batch))
        yield from self.get(batch)  # so that an outer batch hears at once that this one goes on
        return count

    def _retry(self, batch: str) -> Flow[int]:
        """One after the other: each is taken up in the batch right before it is in its queue, and never without it."""
        yield from self.get(batch)
        count = 0
        for member, queue in (yield from self._broken(batch)):
            try:
                if queue == "":
                    count += yield from self.retry(member)
                    continue
                yield from self._by_hand.retry(member, queue)
            except (BatchNotFound, JobNotFound, Conflict):
                continue  # forgotten, or somebody else was faster
            count += 1
        return count

    def _on_record(self, what: str, batch: str, reason: str | None, act: Flow[T]) -> Flow[T]:
        """Do it; with a reason, on record."""
        if reason is None:
            return (yield from act)
        said = check_reason(reason)
        info = yield from self.get(batch)
        deed = Deed(what, batch, said, f"{info.pending} left, {info.failed} failed")
        return (yield from self._audit.around(deed, act))

    def failed(self, batch: str) -> Flow[list[tuple[str, str]]]:
        """The members that failed, each with its queue ('' = a batch)."""
        yield from self.get(batch)
        return (yield from self._broken(batch))

    def pending(self, batch: str, limit: int) -> Flow[list[tuple[str, str]]]:
        """Some members that have not ended, each with its queue ('' = a batch), at most `limit`."""
        key, cursor = Keys(self._verbs.options.prefix, f"batch:{batch}").of("pending"), 0
        found: list[tuple[str, str]] = []
        while True:
            cursor, flat = yield Command(("HSCAN", key, cursor, "COUNT", limit), hash_page, True)
            found += _places(flat)
            if cursor == 0 or len(found) >= limit:
                return sorted(found)[:limit]

    def _broken(self, batch: str) -> Flow[list[tuple[str, str]]]:
        broken = Keys(self._verbs.options.prefix, f"batch:{batch}").of("broken")
        flat: list[bytes] = yield Command(("HGETALL", broken), _flat, True)
        return sorted(_places(flat))

    def list(self, limit: int) -> Flow[list[BatchInfo]]:
        """The newest batches; those that were kept long enough are taken off the list."""
        key = Globals(self._verbs.options.prefix).batches
        found: list[BatchInfo] = []
        start = 0
        while len(found) < limit:
            names: list[bytes] = yield Command(("ZRANGE", key, start, start + limit - 1, "REV"), list, True)
            for name in map(text, names):
                try:
                    standing = yield from self._follow.note(name)
                    if standing is not None:
                        found.append(_info(name, standing))
                except UNREADABLE as error:
                    log.warning("the batch %s is left out: it cannot be read: %s", shown(name), error)
                    start += 1
                    continue
                start += not (standing is None and (yield from self._dropped(key, name)))
            if len(names) < limit:
                break
        return found[:limit]

    def _dropped(self, key: str, batch: str) -> Flow[bool]:
        """Take one that is not there off the list, unless it is so new that it may just be beginning."""
        listed_ms: int | None = yield Command(("ZSCORE", key, batch), number, True)
        if listed_ms is not None and listed_ms > (yield from self._verbs.server_ms()) - calls.KEEP_BATCH_MS:
            return False
        yield Command(("ZREM", key, batch), int)
        return True


def _info(batch: str, standing: Standing | None) -> BatchInfo:
    if standing is None:
        raise BatchNotFound(f"There is no batch {batch!r}.", hint="delayq batch list shows those there are.")
    plan = followups.decode_plan(standing.plan)
    return BatchInfo(
        id=batch,
        name=plan.name,
        pending=standing.pending,
        done=standing.done,
        failed=standing.failed,
        skipped=standing.skipped,
        created_ms=standing.created_ms,
        cancelled_ms=standing.cancelled_ms,
        finished_ms=standing.finished_ms,
        allow_failures=plan.allow_failures,
        owner=plan.owner,
    )


def _places(flat: Sequence[bytes]) -> list[tuple[str, str]]:
    """Members and their queues."""
    return [(text(member), counted(raw).queue) for member, raw in zip(flat[::2], flat[1::2], strict=True)]


def _flat(reply: object) -> list[bytes]:
    """A hash's reply, in whichever shape the protocol version gives it."""
    if isinstance(reply, dict):
        return [word for pair in reply.items() for word in pair]
    assert isinstance(reply, list)
    return reply
