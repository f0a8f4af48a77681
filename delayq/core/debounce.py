"""`Debounce`: of many dispatches in a short time the last one wins. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

from delayq.core.errors import InvalidInput
from delayq.core.unique import START, UniqueKey, check_key, key_text, scoped
from delayq.core.when import duration_ms


class Quiet(NamedTuple):
    """How long nothing may come before a job runs, and how long it is put off at most; 0 = without limit."""

    wait_ms: int
    max_wait_ms: int


@dataclass(frozen=True, slots=True)
class Debounce:
    """A job runs when no other of its name with the same key was dispatched for `wait`; then with the last payload.

    It waits at most `max_wait` from the first dispatch on (None = as long as more come). `key` as in `Unique`, but
    without one it is the job's name alone. Raises `InvalidInput`, `InvalidDuration`.
    """

    wait: str | timedelta
    max_wait: str | timedelta | None = None
    key: UniqueKey = ""

    def __post_init__(self) -> None:
        quiet = self.quiet
        if self.key != "":
            check_key(self.key)
        if quiet.wait_ms == 0 or 0 < quiet.max_wait_ms < quiet.wait_ms:
            raise InvalidInput(
                f"A debounce waits for {self.wait!r}, at most {self.max_wait!r}.",
                hint='Wait for some time, and at most for longer: Debounce("30s", max_wait="5m").',
            )

    @property
    def quiet(self) -> Quiet:
        """Both durations."""
        return Quiet(duration_ms(self.wait), 0 if self.max_wait is None else duration_ms(self.max_wait))

    def lock(self, name: str, data: Any) -> str:
        """The lock of the dispatch that waits, as its envelope carries it: its start frees it."""
        return scoped("debounce", name, key_text(self.key, data)) + START
