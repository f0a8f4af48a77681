"""From an outcome to what a broker does: the envelope rewritten, failures kept, what follows put together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from delayq.core import ending as endings
from delayq.core import envelope as envelopes
from delayq.core import failure as failures
from delayq.core.errors import BadEnvelope, ConfigError
from delayq.core.followups import Send, Todo
from delayq.core.outcome import DONE, Ack, GiveUp, Outcome, Release
from delayq.drivers.base import Claim
from delayq.drivers.broker import Act, Again, Bury, Forget, Item
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
    own_failed: bool
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
        lost = [item for item in todo if not isinstance(item, Send)]
        if isinstance(outcome, Ack) and not lost:
            return Ended(Forget(claim, raw, _items(todo, now_ms)))
        if isinstance(outcome, Ack):  # its handler changed the chain; no producer was there to be refused
            return self.of(claim, raw, self._no_batches(raw), now_ms)
        return self._failed(claim, raw, outcome, now_ms, [item for item in todo if isinstance(item, Send)])

    def _no_batches(self, raw: bytes) -> GiveUp:
        job = envelopes.decode(raw)
        error = ConfigError(
            f"The chain goes on with a batch, and the connection {self.connection!r} keeps none.",
            hint="Dispatch the chain over a connection to Redis.",
        )
        return GiveUp(job.attempts + 1, job.exceptions + 1, error)

    def _failed(self, claim: Claim, raw: bytes, outcome: GiveUp, now_ms: int, todo: Todo) -> Ended:
        envelope, then = _rewritten(raw, outcome), _items(todo, now_ms)
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
        if self.own_failed:
            return Ended(Bury(claim, raw, envelope, record, then), record)
        return Ended(Forget(claim, raw, then), record)


def _items(todo: Todo, now_ms: int) -> tuple[Item, ...]:
    return tuple(
        Item(
            item.id,
            envelopes.decode(bytes(item.envelope)).name,
            item.queue,
            bytes(item.envelope),
            item.delay_ms,
            now_ms + item.delay_ms,
        )
        for item in todo
        if isinstance(item, Send)
    )


def _rewritten(raw: bytes, outcome: Release | GiveUp) -> bytes:
    """The envelope with its new counts; as it is when it is none: another system's payload is kept byte for byte."""
    try:
        envelopes.decode(raw)
        return envelopes.rewrite(raw, attempts=outcome.attempts, exceptions=outcome.exceptions or None)
    except BadEnvelope:
        return raw


def _name(raw: bytes) -> str:
    try:
        return envelopes.decode(raw).name
    except BadEnvelope:
        return ""
