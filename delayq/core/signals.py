"""What a handler may raise to say how its job should end. Control flow, not errors."""

from __future__ import annotations


class JobSignal(Exception):
    """Base of all signals; catch it to let signals through a handler of your own."""


class Retry(JobSignal):
    """Try again after `delay` ('5m', timedelta, or None for the job's backoff). Costs an attempt."""

    def __init__(self, delay: object = None, *, reason: str = "") -> None:
        super().__init__(reason or "retry asked for")
        self.delay = delay


class Snooze(JobSignal):
    """Look again after `delay`. Costs no attempt."""

    def __init__(self, delay: object, *, reason: str = "") -> None:
        super().__init__(reason or "snoozed")
        self.delay = delay


class Fail(JobSignal):
    """Fail now, whatever tries are left."""

    def __init__(self, reason: str = "failed by its handler") -> None:
        super().__init__(reason)


class Discard(JobSignal):
    """Stop and forget the job: neither a success kept for retention nor a failure."""

    def __init__(self, reason: str = "discarded by its handler") -> None:
        super().__init__(reason)
