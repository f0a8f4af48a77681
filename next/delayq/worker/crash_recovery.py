"""Settles for children that have ended, by what their slots show.

finished, and nothing but an ack is owed    done
not started, or never seen by the child     handed back, at no cost
running when the child died by itself       charged with one recovery
running when the child was killed for it    charged with its timeout or its cancel; several: a recovery each
running beside that, or at a shutdown       handed back, at no cost
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from delayq.backends.protocol import Delivery, DeliveryRef, EntryKey, LeaseKeeper, Settlement
from delayq.core.control_flow import JobCancelled, JobInterrupted, JobTimedOut
from delayq.worker.children import ChildProcess, Ending
from delayq.worker.shared_memory import SlotState

logger: Final = logging.getLogger("delayq.worker")

EndOfKilled = Callable[[Delivery, BaseException], Settlement]
"""Decides what follows an attempt whose process was killed for it."""


class CrashRecovery:
    """Settles once for each child that has ended. What fails is tried again at the next step."""

    def __init__(self, keeper: LeaseKeeper, end_of_killed: EndOfKilled) -> None:
        self._keeper = keeper
        self._end_of_killed = end_of_killed

    def step(self, children: Sequence[ChildProcess], now: float) -> bool:
        """Settle for the children among these that have ended."""
        ended = [child for child in children if child.process_id is None and not child.is_settled]
        for child in ended:
            self._settle(child)
            child.is_settled = True
        return bool(ended)

    def _settle(self, child: ChildProcess) -> None:
        """Settle the pending jobs of a dead child until none is left, or until a call changes nothing.

        One call may settle only a part, because calls are limited to a number of jobs and bytes.
        """
        states = {view.ref.key: view.state for view in child.slots.read()}
        before: set[EntryKey] = set()
        # A child that shut down may have pending jobs too: they were delivered while it abandoned a read.
        while pending := self._keeper.pending(child.consumer):
            keys = {delivery.key for delivery in pending}
            if keys == before:
                return
            before = keys
            self._settle_pending(child, pending, states)

    def _settle_pending(
        self, child: ChildProcess, pending: Sequence[Delivery], states: Mapping[EntryKey, SlotState]
    ) -> None:
        done: list[DeliveryRef] = []
        unstarted: list[DeliveryRef] = []
        vanished: list[DeliveryRef] = []
        decided: list[Settlement] = []
        for delivery in pending:
            state = states.get(delivery.key, SlotState.WAITING)
            if state is SlotState.DONE:
                done.append(delivery.ref)
            elif state is SlotState.WAITING or (child.ending and not self._is_to_blame(child, delivery)):
                unstarted.append(delivery.ref)
            elif error := _error_of(child):
                decided.append(self._end_of_killed(delivery, error))
            else:
                vanished.append(delivery.ref)
        failed = self._keeper.settle_after_death(done, unstarted, vanished, decided)
        logger.warning(
            "settled for the ended child %s: %d done, %d handed back, %d charged with a recovery, %d ended",
            child.consumer,
            len(done),
            len(unstarted),
            len(vanished),
            len(decided),
        )
        for job in failed:
            logger.error("job %s (queue %s) failed: too many of the processes that ran it ended", job.id, job.queue)

    def _is_to_blame(self, child: ChildProcess, delivery: Delivery) -> bool:
        return child.ending is not Ending.SHUTDOWN and delivery.key in child.killed_for


def _error_of(child: ChildProcess) -> JobInterrupted | None:
    """Return what the job is charged with because of which a child was killed; None = a recovery."""
    if len(child.killed_for) != 1:
        return None  # one of several may have kept the others from ending
    if child.ending is Ending.TIMEOUT:
        return JobTimedOut("The job did not end when its time was over, and was ended with its process.")
    if child.ending is Ending.CANCEL:
        return JobCancelled("The job did not end when it was asked to stop, and was ended with its process.")
    return None
