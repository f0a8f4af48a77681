"""Settles what has ended, for workers and for supervisors: failures into their store first, then out of the queue."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from delayq.core.errors import AWAY, DelayqError
from delayq.core.outcome import Outcome
from delayq.drivers.base import Claim
from delayq.drivers.broker import Broker
from delayq.drivers.failed_store import FailedStore
from delayq.drivers.serving.acts import Acts, Ended

log = logging.getLogger("delayq.worker")


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


class Settling:
    """Of one connection in one process. The store of failed jobs is made when the first one fails."""

    def __init__(self, broker: Broker, acts: Acts, failed: Callable[[], FailedStore] | None) -> None:
        self._broker = broker
        self._acts = acts
        self._make_store = failed
        self._store: FailedStore | None = None

    def settle(self, ends: Sequence[End]) -> Settled:
        """All together; after an error that concerns one of them, one by one. Raises what says that nobody is there."""
        if not ends:
            return Settled([], [])
        try:
            return Settled([*self._together(ends)], [])
        except AWAY:
            raise
        except DelayqError as error:
            if len(ends) == 1:
                return Settled([None], [error])
        alone = [self.settle([end._replace(resent=True)]) for end in ends]
        return Settled(
            [answer for one in alone for answer in one.answers], [error for one in alone for error in one.errors]
        )

    def close(self) -> None:
        """Close the store, if there is one."""
        if self._store is not None:
            self._store.close()

    def _together(self, ends: Sequence[End]) -> list[bool]:
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
