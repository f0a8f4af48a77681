"""What a handler may raise to say how its job should end. Control flow, not errors."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from delayq.core.when import duration_ms


class JobSignal(Exception):
    """Base of all signals; catch it to let signals through a handler of your own."""


class Retry(JobSignal):
    """Try again after `delay` ('5m', timedelta, or None for the job's backoff). Costs an attempt.

    Raises `InvalidDuration` at once when the delay is none, so that the mistake shows where it was made.
    """

    def __init__(self, delay: str | timedelta | None = None, *, reason: str = "") -> None:
        super().__init__(reason or "retry asked for")
        self.delay_ms = None if delay is None else duration_ms(delay)


class Snooze(JobSignal):
    """Look again after `delay`. Costs no attempt. Raises `InvalidDuration` when the delay is none."""

    def __init__(self, delay: str | timedelta, *, reason: str = "") -> None:
        super().__init__(reason or "snoozed")
        self.delay_ms = duration_ms(delay)


class TurnedAway(Snooze):
    """A snooze by a limit. `settled`, if any, is called once the job is back in its queue."""

    def __init__(self, delay: timedelta, *, reason: str, settled: Callable[[], object] | None = None) -> None:
        super().__init__(delay, reason=reason)
        self.settled = settled


class Fail(JobSignal):
    """Fail now, whatever tries are left. An exception as the `reason` is what is kept as the failure."""

    def __init__(self, reason: str | BaseException = "failed by its handler") -> None:
        super().__init__(str(reason))
        self.cause: BaseException = reason if isinstance(reason, BaseException) else self


class Discard(JobSignal):
    """Stop and forget the job: neither a success kept for retention nor a failure."""

    def __init__(self, reason: str = "discarded by its handler") -> None:
        super().__init__(reason)
