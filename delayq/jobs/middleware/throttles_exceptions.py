"""`ThrottlesExceptions`: a circuit breaker around what handlers depend on.

closed     jobs run; `most` failures within `decay` open it, a success forgets them
open       jobs are snoozed until `decay` has passed since the first of these failures
then       one job at a time tries: a success closes it, a failure opens it for `decay` again
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Final, TypeAlias, TypedDict, Unpack

from delayq.core.errors import ConfigError, DelayqError
from delayq.core.interrupts import JobTimedOut
from delayq.core.limit_names import limit_of_job
from delayq.core.limiting import Circuit, Probe, Probed, Report, Verdict, Who
from delayq.core.shown import shown
from delayq.core.signals import Discard, Fail, JobSignal, Retry
from delayq.core.when import duration_ms
from delayq.jobs.middleware.conditions import at_once, refuse_async
from delayq.jobs.middleware.limited import Key, Limited, checked, key_of, spread, who_of
from delayq.jobs.middleware.questions import CALL, Steps
from delayq.jobs.middleware.running_job import RunningJob

log = logging.getLogger("delayq.jobs")

Which: TypeAlias = type[Exception] | tuple[type[Exception], ...] | Callable[[Exception], bool]
"""Classes of exceptions, or a function that is given one."""

PROBING_MS: Final = 5_000
MOST: Final = 1_000_000


class Throttle(TypedDict, total=False):
    """What `ThrottlesExceptions` may be told."""

    key: Key
    shared: bool
    when: Which | None
    discard_when: Which | None
    fail_when: Which | None
    backoff: str | timedelta | None
    release_after: str | timedelta | None
    drop: bool


class ThrottlesExceptions(Limited):
    """Keeps jobs from calling what fails all the time. The exception itself goes on, and costs an attempt as always.

    `key` sets apart what fails by itself (a host, an account); jobs of one name share a circuit, with `shared` all that
    say so. `when` chooses the exceptions that count. What `discard_when` or `fail_when` chooses does not: the job is
    discarded, or fails for good. `backoff`: when a job that failed comes back, instead of its own backoff.
    `release_after`: the snooze of a job that is turned away; `drop` as in `Limited`. Raises `ConfigError`,
    `InvalidDuration`, `InvalidInput`.
    """

    def __init__(self, most: int = 10, decay: str | timedelta = "10m", **options: Unpack[Throttle]) -> None:
        super().__init__(options.get("release_after"), drop=options.get("drop", False))
        self._most = _failures(most)
        self._decay_ms = max(1, duration_ms(decay))
        self._key = checked(options.get("key", ""))
        self._shared = options.get("shared", False)
        self._when, self._discard_when = options.get("when"), options.get("discard_when")
        self._fail_when, self._backoff = options.get("fail_when"), options.get("backoff")
        for word, which in (("when", self._when), ("discard_when", self._discard_when), ("fail_when", self._fail_when)):
            _check_which(word, which)
        refuse_async("ThrottlesExceptions", self._when, self._discard_when, self._fail_when)
        if self._backoff is not None:
            duration_ms(self._backoff)
        if unknown := options.keys() - Throttle.__annotations__.keys():
            raise TypeError(f"ThrottlesExceptions does not know {', '.join(sorted(unknown))}")

    def __repr__(self) -> str:
        return "ThrottlesExceptions()"

    def steps(self, job: RunningJob) -> Steps:
        """Ask, call the handler, tell how it went."""
        key = key_of(self._key, job)
        if key is None:
            return (yield CALL)
        name = "throttle" if self._shared else limit_of_job("throttle", job.name)
        who = who_of(job)
        try:
            probed: Probed = yield Probe(who, name, key)
        except DelayqError as error:
            self._unasked(job, name, error)
        if probed.circuit in (Circuit.OPEN, Circuit.PROBING):
            wait_ms = spread(PROBING_MS) if probed.circuit is Circuit.PROBING else probed.wait_ms + spread(500)
            return self._turn_away(job, name, key, wait_ms)
        trying = probed.circuit is Circuit.PROBE
        try:
            result = yield CALL
        except GeneratorExit:
            raise
        except BaseException as error:
            verdict = self._verdict(error)
            if trying or verdict is Verdict.FAILED:
                yield from self._tell(who, name, key, verdict)
            instead = self._instead(error, verdict)
            if instead is None:
                raise
            raise instead from error
        if trying or probed.failures:
            yield from self._tell(who, name, key, Verdict.PASSED)
        return result

    def _verdict(self, error: BaseException) -> Verdict:
        """What an error says of what the handler depends on. A timeout says that it hangs; a signal says nothing."""
        if isinstance(error, JobTimedOut):
            return Verdict.FAILED
        if isinstance(error, JobSignal) or not isinstance(error, Exception):
            return Verdict.NEITHER
        if _chosen(self._discard_when, error) or _chosen(self._fail_when, error):
            return Verdict.NEITHER
        return Verdict.FAILED if self._when is None or _chosen(self._when, error) else Verdict.NEITHER

    def _instead(self, error: BaseException, verdict: Verdict) -> JobSignal | None:
        """What is raised in the place of an error; None = the error itself, as mostly."""
        if isinstance(error, JobSignal) or not isinstance(error, Exception):
            return None
        if _chosen(self._discard_when, error):
            return Discard(f"discarded for {type(error).__name__}")
        if _chosen(self._fail_when, error):
            return Fail(error)
        if verdict is Verdict.FAILED and self._backoff is not None:
            return Retry(self._backoff, reason=f"{type(error).__name__}: {error}")
        return None

    def _tell(self, who: Who, name: str, key: str, verdict: Verdict) -> Steps:
        """Say how it went. When that fails nothing is counted; whoever tries is found to be gone when its job ends."""
        try:
            yield Report(who, name, key, verdict, self._most, self._decay_ms)
        except DelayqError as error:
            log.warning("job %s could not tell the circuit %s how it went: %s", who.id, name, error)


def _failures(most: object) -> int:
    if isinstance(most, bool) or not isinstance(most, int) or not 1 <= most <= MOST:
        raise ConfigError(f"ThrottlesExceptions was given {shown(most)} failures.", hint="Give a number from 1 on.")
    return most


def _check_which(word: str, which: object) -> None:
    kinds = which if isinstance(which, tuple) else (which,)
    if all(isinstance(kind, type) and issubclass(kind, Exception) for kind in kinds):
        return
    if which is not None and (isinstance(which, type | tuple) or not callable(which)):
        raise ConfigError(
            f"ThrottlesExceptions was given {word}={which!r}.",
            hint=f"Give a class of exceptions, a tuple of them, or a function: {word}=(OSError, KeyError).",
        )


def _chosen(which: Which | None, error: Exception) -> bool:
    if which is None:
        return False
    if isinstance(which, type | tuple):
        return isinstance(error, which)
    return at_once(which(error), "A function of ThrottlesExceptions answered with something to await.")
