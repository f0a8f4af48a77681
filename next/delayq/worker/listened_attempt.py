"""An attempt that emits JobStarted and JobEnded. A child uses this class only if listeners of these events exist."""

import time
from typing import Any, ClassVar

from delayq.backends.values import Acked, Failed, Released, Settlement, Stopped
from delayq.core.events import Ended, JobEnded, JobStarted
from delayq.core.listeners import emit, listeners
from delayq.core.outcome import Done, GiveUp, Outcome, RunAgain
from delayq.jobs import attempt_events
from delayq.worker.attempt import Attempt
from delayq.worker.attempt_log import logger


def class_of_attempts() -> type[Attempt]:
    """Return ListenedAttempt if JobStarted or JobEnded has listeners now, and otherwise Attempt."""
    return ListenedAttempt if JobStarted in listeners or JobEnded in listeners else Attempt


class ListenedAttempt(Attempt):
    """An attempt that emits events. `started_at`: when the handler was called, by `time.monotonic`."""

    is_listened: ClassVar[bool] = True

    started_at: float = 0.0

    async def acall(self) -> Any:
        """Emit JobStarted, and then call and await the handler; see Attempt."""
        self._start()
        return await Attempt.acall(self)

    def call(self) -> Any:
        """Emit JobStarted, and then call the handler; see Attempt."""
        self.context.run(self._start)
        return Attempt.call(self)

    def tell_ended(self, settlement: Settlement, outcome: Outcome | None, error: BaseException | None) -> None:
        """Emit JobEnded. The caller must run this method in `context`.

        `error`: the error that application code raised after the handler; None = no such error.
        """
        if self.refusal is not None:
            return
        if isinstance(outcome, GiveUp) or (error is None and isinstance(outcome, RunAgain)):
            error = outcome.error
        seconds = time.monotonic() - self.started_at
        try:
            emit(attempt_events.ended(self.envelope, ended_as(settlement, outcome), error, seconds))
        except BaseException:  # the job must be settled
            logger.exception(
                "job %s (%s): a listener of JobEnded was interrupted", self.envelope.id, self.envelope.name
            )

    def _start(self) -> None:
        if self.refusal is None:
            self.started_at = time.monotonic()
            emit(attempt_events.started(self.envelope))


def ended_as(settlement: Settlement, outcome: Outcome | None = None) -> Ended:
    """Return the value for `JobEnded.outcome`.

    The argument `outcome` is None if no handler was called, or if deciding the outcome failed.
    """
    if isinstance(outcome, Done) and outcome.discarded:
        return "discarded"
    if isinstance(settlement, Released):
        return "retried" if settlement.failure else "snoozed"
    words: dict[type, Ended] = {Acked: "done", Failed: "failed", Stopped: "cancelled"}
    return words[type(settlement)]
