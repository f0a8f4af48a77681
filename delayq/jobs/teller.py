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
        self.seal: Callable[[bytes], bytes] | None = None
        """Encrypts a partial result; None of a job that is not encrypted."""
        self._tell = tell
        self._told = Told()

    def progress(self, done: Number, total: Number | None = None, note: str = "") -> None:
        """See `JobContext.progress`."""
        checked = None if total is None else check_number("total", total)
        self._say(replace(self._told, done=check_number("done", done), total=checked, note=str(note)[:MAX_NOTE]))

    def partial(self, value: Any) -> None:
        """See `JobContext.partial`."""
        raw = encode_partial(value, MAX_PARTIAL)
        self._say(replace(self._told, partial=raw if self.seal is None else self.seal(raw)))

    def _say(self, told: Told) -> None:
        self._told = told
        self._tell(told)
