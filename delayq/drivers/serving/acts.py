"""From an outcome to what a broker does: the envelope rewritten, failures kept, what follows put together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from delayq.core import ending as endings
from delayq.core import envelope as envelopes
from delayq.core import failure as failures
from delayq.core.errors import BadEnvelope, ConfigError
from delayq.core.followups import Note, Open, Send, Todo
from delayq.core.outcome import DONE, Ack, GiveUp, Outcome, Release
from delayq.core.unique import word_of
from delayq.drivers.base import Claim
from delayq.drivers.broker import Act, Again, Bury, Forget, Item
from delayq.drivers.capabilities import ALSO_DATABASE, ELSEWHERE, Capabilities
from delayq.drivers.failed_store import FailedJob


@dataclass(frozen=True, slots=True)
class Ended:
    """An act and, for a job that failed, its record. An `own_failed` broker gets both in a `Bury`."""

    act: Act
    failed: FailedJob | None = None


@dataclass(frozen=True, slots=True)
class Acts:
    """Makes them for one connection."""

    connection: str
    can: Capabilities
    dump: Callable[[bytes], bytes]

    def of(self, claim: Claim, raw: bytes, outcome: Outcome, now_ms: int) -> Ended:
        """`raw` is the envelope as delivered; b'' when nobody knows it any more."""
        if outcome is DONE:
            return Ended(Forget(claim, raw))
        if isinstance(outcome, Release):
            envelope = _rewritten(raw, outcome) if raw and outcome.error is not None else b""
            return Ended(Again(claim, raw, envelope, outcome.delay_ms, outcome.attempts))
        ended = endings.ending(raw, claim.id, claim.queue, outcome, now_ms) if raw else None
        todo = ended.todo if ended else []
        if isinstance(outcome, Ack):
            lost = self._cannot(todo)
            if lost is not None:  # its handler changed the chain; no producer was there to be refused
                return self.of(claim, raw, _given_up(raw, lost), now_ms)
            return Ended(Forget(claim, raw, items_of(todo, now_ms), _told(todo)))
        return self._failed(claim, raw, outcome, now_ms, todo)

    def _cannot(self, todo: Todo) -> ConfigError | None:
        """Why the backend cannot carry what follows."""
        if not self.can.batches and any(not isinstance(item, Send) for item in todo):
            what = "goes on with a batch", "keeps none", ALSO_DATABASE
        elif not self.can.links_wait and any(isinstance(item, Send) and item.unique for item in todo):
            what = "goes on with a unique job", "lets no link wait for its key", ELSEWHERE
        else:
            return None
        return ConfigError(
            f"The chain {what[0]}, and the connection {self.connection!r} {what[1]}.",
            hint=what[2],
        )

    def _failed(self, claim: Claim, raw: bytes, outcome: GiveUp, now_ms: int, todo: Todo) -> Ended:
        envelope, then = _rewritten(raw, outcome), items_of(todo, now_ms)
        failure = failures.describe(outcome.error, at_ms=now_ms, attempt=outcome.attempts)
        record = FailedJob(
            id=claim.id,
            connection=self.connection,
            queue=claim.queue,
            name=_name(raw),
            payload=self.dump(envelope),
            failure=failure,
            failed_ms=now_ms,
        )
        told = _told(todo) if self.can.batches else ()
        if self.can.own_failed:
            return Ended(Bury(claim, raw, envelope, record, then, told), record)
        return Ended(Forget(claim, raw, then, told), record)


def _given_up(raw: bytes, error: ConfigError) -> GiveUp:
    job = envelopes.decode(raw)
    return GiveUp(job.attempts + 1, job.exceptions + 1, error)


def items_of(todo: Todo, now_ms: int) -> tuple[Item, ...]:
    """The jobs among what follows an end."""
    return tuple(item_of_send(item, now_ms) for item in todo if isinstance(item, Send))


def item_of_send(send: Send, now_ms: int) -> Item:
    """A job whose turn has come, as brokers take it."""
    raw = bytes(send.envelope)
    name, lock = envelopes.decode(raw).name, word_of(send.unique)
    return Item(send.id, name, send.queue, raw, send.delay_ms, now_ms + send.delay_ms, lock)


def _told(todo: Todo) -> tuple[Open | Note, ...]:
    """What batches hear of an end, and those that begin with it."""
    return tuple(item for item in todo if isinstance(item, Open | Note))


def _rewritten(raw: bytes, outcome: Release | GiveUp) -> bytes:
    """The envelope with its new counts; as it is when it is none: another system's payload is kept byte for byte."""
    try:
        envelopes.decode(raw)
        since_ms = outcome.unknown_since_ms if isinstance(outcome, Release) else None
        return envelopes.recounted(
            raw, attempts=outcome.attempts, exceptions=outcome.exceptions, unknown_since_ms=since_ms
        )
    except BadEnvelope:
        return raw


def _name(raw: bytes) -> str:
    try:
        return envelopes.decode(raw).name
    except BadEnvelope:
        return ""
