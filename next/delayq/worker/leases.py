"""Keeps the leases of children, and settles for the dead. Both read the slots and nothing else of a child."""

import logging
from typing import Final

from delayq.backends.protocol import Held, LeaseKeeper
from delayq.worker.shared_memory import SlotState, SlotTable

logger: Final = logging.getLogger("delayq.worker")


def renew(keeper: LeaseKeeper, consumer: str, slots: SlotTable) -> None:
    """Renew the leases of everything that a child holds.

    When the backend holds more for it, an answer was lost: the child is asked to read its pending jobs again.
    """
    renewed = keeper.renew(consumer, [job for _, job in slots.read()])
    if renewed.more > 0:
        slots.ask_replay()


def settle_for_ended(keeper: LeaseKeeper, consumer: str, slots: SlotTable) -> None:
    """Settle what an ended child held: what was done is done, what was running is charged, the rest is handed back.

    A delivery that never reached the slots was not started either. Also a child that ended in order may hold one: it
    was delivered while the child turned away from a blocked read.
    """
    states = {job.entry: state for state, job in slots.read()}
    sorted_jobs: dict[SlotState, list[Held]] = {state: [] for state in SlotState}
    for delivery in keeper.pending(consumer):
        state = states.get(delivery.entry, SlotState.WAITING)
        sorted_jobs[state].append(delivery.held)
    if not any(sorted_jobs.values()):
        return
    done = sorted_jobs[SlotState.DONE]
    unstarted = sorted_jobs[SlotState.WAITING]
    running = sorted_jobs[SlotState.RUNNING]
    keeper.settle_after_death(done, unstarted, running)
    logger.warning(
        "settled for the ended child %s: %d done, %d handed back, %d charged with a recovery",
        consumer,
        len(done),
        len(unstarted),
        len(running),
    )
