"""What one running job tells of itself, word by word. Only the last word counts; the worker writes it now and then."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from delayq.core.progress import MAX_NOTE, Number, Told, check_number, encode_partial

MAX_PARTIAL: Final = 256 * 1024


def _nobody(told: Told) -> None:
    """Outside of a worker nobody hears it."""


class Teller:
    """Of one attempt. `tell` is given everything told so far, each time. Costs a handler microseconds."""

    def __init__(self, tell: Callable[[Told], None] = _nobody) -> None:
        self._tell = tell
        self._told = Told()

    def progress(self, done: Number, total: Number | None = None, note: str = "") -> None:
        """See `JobContext.progress`."""
        checked = None if total is None else check_number("total", total)
        self._say(replace(self._told, done=check_number("done", done), total=checked, note=str(note)[:MAX_NOTE]))

    def partial(self, value: Any) -> None:
        """See `JobContext.partial`."""
        self._say(replace(self._told, partial=encode_partial(value, MAX_PARTIAL)))

    def _say(self, told: Told) -> None:
        self._told = told
        self._tell(told)
