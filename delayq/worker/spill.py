"""Outcomes as bytes: what a child leaves in shared memory, so that its death loses no finished work.

An error becomes its record. The envelope is not written: its new counts are numbers, and whoever settles
reads it again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

import msgspec

from delayq.core import failure as failures
from delayq.core.failure import Failure, Ran, Recorded
from delayq.core.outcome import Ack, GiveUp, Outcome, Release
from delayq.drivers.base import Claim
from delayq.worker.slots import FINISHED, SPILL_BYTES, SPILLED, Seen, Slots


class _Kept(msgspec.Struct, array_like=True, frozen=True, tag="ack"):
    retention_ms: int
    result: bytes
    called_off: bool
    chain: bytes
    ran: Ran | None


class _Again(msgspec.Struct, array_like=True, frozen=True, tag="release"):
    delay_ms: int
    attempts: int
    exceptions: int
    failure: Failure | None
    unknown_since_ms: int | None


class _Over(msgspec.Struct, array_like=True, frozen=True, tag="fail"):
    attempts: int
    exceptions: int
    failure: Failure


log = logging.getLogger("delayq.supervisor")

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Kept | _Again | _Over).decode


def encode(outcome: Outcome, now_ms: int) -> bytes:
    """An outcome as bytes; `now_ms` is written into its failure."""
    if isinstance(outcome, Ack):
        return _encode(_Kept(outcome.retention_ms, outcome.result, outcome.called_off, outcome.chain, outcome.ran))
    failure = None
    if outcome.error is not None:
        failure = failures.describe(outcome.error, at_ms=now_ms, attempt=outcome.attempts or None, ran=outcome.ran)
    if isinstance(outcome, Release):
        counts = outcome.delay_ms, outcome.attempts, outcome.exceptions
        return _encode(_Again(*counts, failure, outcome.unknown_since_ms))
    return _encode(_Over(outcome.attempts, outcome.exceptions, failure or Failure(type="", message="")))


def decode(raw: bytes) -> Outcome:
    """The outcome again; its error, if any, is a `Recorded` one."""
    kept = _decode(raw)
    if isinstance(kept, _Kept):
        return Ack(kept.retention_ms, kept.result, kept.called_off, kept.chain, kept.ran)
    if isinstance(kept, _Again):
        error = None if kept.failure is None else Recorded(kept.failure)
        since_ms = kept.unknown_since_ms
        return Release(kept.delay_ms, kept.attempts, kept.exceptions, error, unknown_since_ms=since_ms)
    return GiveUp(kept.attempts, kept.exceptions, Recorded(kept.failure))


def ended(slots: Slots, seen: Iterable[Seen]) -> list[tuple[Claim, Outcome]]:
    """What has ended among these, each with its outcome.

    An outcome that cannot be read is left out: a child that lives after all has written over it, as it may once it has
    settled it.
    """
    found: list[tuple[Claim, Outcome]] = []
    for item in seen:
        if item.phase == FINISHED:
            found.append((item.claim, Ack()))
        elif item.phase == SPILLED:
            try:
                found.append((item.claim, decode(slots.outcome(item.slot))))
            except msgspec.MsgspecError as error:
                log.warning("job %s: its outcome cannot be read: %s", item.claim.id, error)
    return found


class SpillWriter:
    """The child's pen: appends, and starts again at the front once nothing that was written counts any more."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self._top = 0
        self._live = 0

    def write(self, slot: int, record: bytes) -> bool:
        """Write a slot's outcome; False when there is no room until something was settled."""
        if self._top + len(record) > SPILL_BYTES:
            return False
        self._slots.spill[self._top : self._top + len(record)] = record
        self._slots.spilled[slot] = self._top << 32 | len(record)
        self._top += len(record)
        self._live += 1
        return True

    def settled(self) -> None:
        """One of the outcomes written does not count any more."""
        self._live -= 1
        if self._live == 0:
            self._top = 0
