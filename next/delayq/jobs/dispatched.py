"""Emits JobDispatched for the jobs that a dispatch has stored. Callers first check that listeners exist."""

from typing import Any, Final

from delayq.core.batch_info import BatchInfo
from delayq.core.events import JobDispatched
from delayq.core.listeners import emit

_STORED: Final = ("created", "replaced", "postponed")


def tell_dispatched(sent: Any) -> None:
    """Emit one event for each stored job.

    `sent`: the return value of a client: a reference, a list of references, or the counts of a batch. For a batch, no
    event is emitted.
    """
    for one in sent if isinstance(sent, list) else [sent]:
        if not isinstance(one, BatchInfo) and one.outcome in _STORED:
            emit(JobDispatched(one.id, one.name, one.queue, one.due_ms, one.outcome))
