"""What is to be done for a job once it is back in its queue, and not before: nobody can run it until then."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from delayq.core.errors import AWAY, DelayqError
from delayq.loops.troubles import Troubles
from delayq.worker.held import Held

log = logging.getLogger("delayq.worker")


class Afterwards:
    """Of one child. Empty, but for jobs that a limit turned away; false while it is."""

    def __init__(self) -> None:
        self._what: dict[Held, Callable[[], object]] = {}
        self._troubles = Troubles(log)

    def __bool__(self) -> bool:
        return bool(self._what)

    def add(self, held: Held, what: Callable[[], object]) -> None:
        """Do that when its outcome has been settled. From the thread that ran it, before the outcome is known."""
        self._what[held] = what

    def happen(self, settled: Sequence[Held]) -> None:
        """Do it for these. What cannot be done is left: it only shortens a wait that ends by itself too."""
        todo = [what for held in settled if (what := self._what.pop(held, None)) is not None]
        for what in todo:
            try:
                what()
            except DelayqError as error:
                self._troubles.tell(error)
                if isinstance(error, AWAY):
                    return
