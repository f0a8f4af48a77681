"""Settles what has ended, for workers and for supervisors: failures into their store first, then out of the queue."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from delayq.core.errors import AWAY, DelayqError
from delayq.core.outcome import Outcome
from delayq.drivers.base import Claim
from delayq.drivers.broker import Broker
from delayq.drivers.failed_store import FailedStore
from delayq.drivers.serving.acts import Acts, Ended

log = logging.getLogger("delayq.worker")

REFUSED_TRIES = 5
REFUSED_S = 300.0


class End(NamedTuple):
    """A delivery that has ended: who had it, its envelope as delivered, and how.

    `resent`: an earlier try to settle it may have worked unseen.
    """

    claim: Claim
    raw: bytes
    outcome: Outcome
    resent: bool = False


class Settled(NamedTuple):
    """An answer for each end (None = not settled yet), and what went wrong."""

    answers: list[bool | None]
    errors: list[DelayqError]


class _Refusal(NamedTuple):
    """How often the backend would not settle a delivery that was tried alone, and since when."""

    tries: int
    since: float


class Settling:
    """Of one connection in one process. The store of failed jobs is made when the first one fails.

    What the backend refuses for five minutes, each time by itself, is let go: its lease runs out, and it is delivered
    again, as after the death of its worker. So nothing is lost, and a worker does not fill up with what cannot end.
    """

    def __init__(
        self,
        broker: Broker,
        acts: Acts,
        failed: Callable[[], FailedStore] | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._broker = broker
        self._acts = acts
        self._make_store = failed
        self._clock = clock
        self._store: FailedStore | None = None
        self._refusals: dict[Claim, _Refusal] = {}

    def settle(self, ends: Sequence[End]) -> Settled:
        """All together; after an error that concerns one of them, one by one. Raises what says that nobody is there.

        What was refused before is tried by itself, and keeps no other from being settled.
        """
        alone = {n for n, end in enumerate(ends) if end.claim in self._refusals} if self._refusals else set()
        together = [n for n in range(len(ends)) if n not in alone]
        answers: dict[int, bool | None] = {}
        errors: list[DelayqError] = []
        try:
            answers |= zip(together, self._together([ends[n] for n in together]), strict=True)
        except AWAY:
            raise
        except DelayqError as error:
            if len(together) == 1:
                answers[together[0]] = self._refused(ends[together[0]].claim, error, errors)
            else:  # it may have worked for some of them, unseen
                ends, alone = [end._replace(resent=True) for end in ends], {*range(len(ends))}
        for n in sorted(alone):
            try:
                answers[n] = self._alone(ends[n], errors)
            except AWAY as error:
                if not answers:
                    raise
                errors.append(error)  # what was settled must be known
                break
        return Settled([answers.get(n) for n in range(len(ends))], errors)

    def _alone(self, end: End, errors: list[DelayqError]) -> bool | None:
        try:
            [ours] = self._together([end])
        except AWAY:
            raise
        except DelayqError as error:
            return self._refused(end.claim, error, errors)
        self._refusals.pop(end.claim, None)
        return ours

    def _refused(self, claim: Claim, error: DelayqError, errors: list[DelayqError]) -> bool | None:
        """None: it is tried again. False: never again."""
        now = self._clock()
        before = self._refusals.pop(claim, _Refusal(0, now))
        tries = before.tries + 1
        if tries < REFUSED_TRIES or now - before.since < REFUSED_S:
            self._refusals[claim] = _Refusal(tries, before.since)
            errors.append(error)
            return None
        log.error(
            "job %s of queue %s: its end could not be settled in %d tries (%s); it is let go, and starts again when "
            "its lease has run out",
            claim.id,
            claim.queue,
            tries,
            error,
        )
        return False

    def close(self) -> None:
        """Close the store, if there is one."""
        if self._store is not None:
            self._store.close()

    def _together(self, ends: Sequence[End]) -> list[bool]:
        if not ends:
            return []
        now_ms = self._broker.now_ms()
        ended = [self._acts.of(end.claim, end.raw, end.outcome, now_ms) for end in ends]
        for one in ended:
            self._keep(one)
        answers = self._broker.settle([one.act for one in ended])
        for end, one, ours in zip(ends, ended, answers, strict=True):
            if not ours and not end.resent:  # else it was ours, perhaps, and this record is all that is left of it
                self._take_back(one)
        return answers

    def _keep(self, ended: Ended) -> None:
        if ended.failed is None or self._acts.can.own_failed:
            return
        if self._store is None:
            assert self._make_store is not None  # a worker without one is refused before it starts
            self._store = self._make_store()
        self._store.add(ended.failed)

    def _take_back(self, ended: Ended) -> None:
        """It was somebody else's by then, so it has not failed here. A record that another one wrote since stays."""
        if ended.failed is None or self._store is None:
            return
        kept = self._store.get(ended.failed.id)
        if kept is not None and kept.failed_ms == ended.failed.failed_ms:
            self._store.forget([ended.failed.id])
