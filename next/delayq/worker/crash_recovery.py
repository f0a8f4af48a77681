"""Settles the jobs of dead children. This module runs in the supervisor, which reads the slots of the dead child.

A slot shows the state of one job, in the memory that child and supervisor share. The backend lists the jobs that were
delivered to the child and are not settled. The table shows what happens to each of these jobs. A recovery is a
redelivery after a worker died; a job with too many recoveries fails. To hand back a job is to return it to its queue,
which costs nothing. A finished job counts as running here if its result, retry or failure is not stored yet.
"Kill" means a kill by the supervisor. A child that the kernel killed has ended without a kill.

    finished, and only has to be acknowledged         acknowledged
    not started, or without a slot                    handed back
    running when the child ended without a kill       redelivered; this counts as a recovery
    running, and the only reason for a kill           settled as timed out or as cancelled
    running, and one of several reasons for a kill    redelivered; this counts as a recovery
    running too long in a process that SIGSTOP froze  redelivered; this counts as a recovery
    running, but not a reason for the kill            handed back
    running when the shutdown killed the child        handed back
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from delayq.backends.protocol import LeaseKeeper
from delayq.backends.values import Delivery, DeliveryRef, EntryKey, Settlement
from delayq.core.control_flow import JobCancelled, JobInterrupted, JobTimedOut
from delayq.core.shards import queue_of
from delayq.worker.children import ChildProcess, Ending
from delayq.worker.shared_memory import Part, SlotState, SlotView

logger: Final = logging.getLogger("delayq.worker")

MOST_IDS: Final = 10
"""Maximum number of job ids in one log line."""

EndOfKilled = Callable[[Delivery, BaseException, Part], Settlement]
"""Returns the settlement of a job that was the only reason to kill its process. The error names the reason."""


class CrashRecovery:
    """Settles the jobs of each dead child once. If the backend does not answer, the next step tries again."""

    def __init__(self, keeper: LeaseKeeper, end_of_killed: EndOfKilled) -> None:
        self._keeper = keeper
        self._end_of_killed = end_of_killed

    def step(self, children: Sequence[ChildProcess], now: float) -> bool:
        """Settle the jobs of all dead children whose jobs are not settled yet."""
        ended = [child for child in children if child.process_id is None and not child.is_settled]
        for child in ended:
            self._settle(child)
            child.is_settled = True
        return bool(ended)

    def _settle(self, child: ChildProcess) -> None:
        """Settle the pending jobs of a dead child until none is left, or until a call changes nothing.

        One round may settle only a part of them, because calls are limited to a number of jobs and bytes.
        """
        views = {view.ref.key: view for view in child.slots.read()}
        before: set[EntryKey] = set()
        # A child that shut down may have pending jobs too, for example jobs whose queues refused to settle them.
        while pending := self._keeper.pending(child.consumer):
            keys = {delivery.key for delivery in pending}
            if keys == before:
                return
            before = keys
            self._settle_pending(child, pending, views)

    def _settle_pending(
        self, child: ChildProcess, pending: Sequence[Delivery], views: Mapping[EntryKey, SlotView]
    ) -> None:
        done: list[DeliveryRef] = []
        unstarted: list[DeliveryRef] = []
        vanished: list[DeliveryRef] = []
        decided: list[Settlement] = []
        for delivery in pending:
            view = views.get(delivery.key)
            state = SlotState.WAITING if view is None else view.state
            if state is SlotState.DONE or (view is not None and view.part is Part.LISTENER_OF_DONE):
                done.append(delivery.ref)
            elif state is SlotState.WAITING or (child.ending and not self._is_to_blame(child, delivery)):
                unstarted.append(delivery.ref)
            elif error := _error_of(child):
                decided.append(self._end_of_killed(delivery, error, Part.HANDLER if view is None else view.part))
            else:
                vanished.append(delivery.ref)
        failed = self._keeper.settle_after_death(done, unstarted, vanished, decided)
        logger.warning(
            "the child %s has ended; of its pending jobs, the supervisor acknowledges %d, hands back %d, counts a "
            "recovery for %d%s, and settles %d as timed out or cancelled",
            child.consumer,
            len(done),
            len(unstarted),
            len(vanished),
            _ids_of(vanished),
            len(decided),
        )
        for job in failed:
            logger.error("job %s (queue %s) failed: its workers vanished too often", job.id, queue_of(job.queue))

    def _is_to_blame(self, child: ChildProcess, delivery: Delivery) -> bool:
        return child.ending is not Ending.SHUTDOWN and delivery.key in child.killed_for


def _ids_of(jobs: Sequence[DeliveryRef]) -> str:
    """Return the ids of the first ten jobs in brackets, because one of them may have killed its process."""
    ids = [job.id for job in jobs[:MOST_IDS]] + ["…"] * (len(jobs) > MOST_IDS)
    return f" ({', '.join(ids)})" if ids else ""


def _error_of(child: ChildProcess) -> JobInterrupted | None:
    """Return the error of the job that was the only reason to kill a child.

    None = a redelivery of its running jobs counts as a recovery.
    """
    if len(child.killed_for) != 1:
        return None  # one of several jobs may have kept the others from ending
    if child.ending is Ending.TIMEOUT:
        return JobTimedOut("The job did not stop at its timeout or deadline, so its process was killed.")
    if child.ending is Ending.CANCEL:
        return JobCancelled("The job did not stop after a cancel, so its process was killed.")
    return None
