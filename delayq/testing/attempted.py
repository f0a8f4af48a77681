"""One attempt that took place while a test travelled."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from delayq.core.outcome import GiveUp, Outcome
from delayq.core.views import Fate
from delayq.drivers.sync import Ran

FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Attempted:
    """What ran when, and how it ended.

    `ended` is done, released, snoozed, discarded or failed; `error` is what the handler raised, signals included.
    `attempt` counts from 1. `due_ms` is when the job was due, `at_ms` when it ran.
    """

    id: str
    name: str
    queue: str
    attempt: int
    due_ms: int
    at_ms: int
    ended: str
    outcome: Outcome
    result: Any = None
    error: BaseException | None = None

    @property
    def at(self) -> datetime:
        """When it ran, in UTC."""
        return datetime.fromtimestamp(self.at_ms / 1000, UTC)


def word_of(ran: Ran) -> Fate | str:
    """How it ended, in a word."""
    return FAILED if isinstance(ran.outcome, GiveUp) else ran.fate
