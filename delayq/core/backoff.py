"""How long a job waits before it is tried again.

    written                      read as        on the wire
    "10s"                        Fixed          10000
    "10s,1m" or ["10s", "1m"]    Steps          [10000, 60000]                              the last one repeats
    Exponential(base_ms=5000)    Exponential    {"base_ms":5000,"factor":2.0,"cap_ms":3600000,"jitter":true}
    "ladder"                     Steps          [60000, 180000, 300000, …]                  one of PRESETS
    a function                   Computed       none: it lives where the handler lives

`attempt` is the attempt that just failed, from 1. `rand` gives a number from 0 up to, not including, 1. No
delay is longer than ten years, and none overflows, whatever the attempt.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType
from typing import Any, Final, TypeAlias, assert_never

from delayq.core.durations import MAX_DURATION_MS, duration_ms, format_duration
from delayq.core.errors import BadEnvelope, InvalidDuration, InvalidInput
from delayq.core.shown import shown

MAX_STEPS: Final = 100  # they travel in every envelope
MAX_FACTOR: Final = 1_000

Random: TypeAlias = Callable[[], float]
BackoffFunction: TypeAlias = Callable[[int, Any], str | timedelta]
"""Given the attempt and its error. `Any`, so that the error may be annotated as narrowly as its job raises."""
WireBackoff: TypeAlias = int | list[int] | dict[str, int | float | bool]

_HINT: Final = 'Write it like "10s", ["10s", "1m"], "ladder" or Exponential(base_ms=5000), or give a function.'


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _check_ms(ms: object, least: int = 0) -> None:
    if not isinstance(ms, int) or isinstance(ms, bool) or not least <= ms <= MAX_DURATION_MS:
        raise InvalidDuration(
            f"{shown(ms)} is no backoff delay in milliseconds.", hint=f"Use a whole number, {least} to 10 years."
        )


@dataclass(frozen=True, slots=True)
class Fixed:
    """The same delay after every attempt: `ms`, 0 to ten years."""

    ms: int

    def __post_init__(self) -> None:
        _check_ms(self.ms)

    def delay_ms(self, attempt: int, error: BaseException | None, rand: Random) -> int:
        """Milliseconds from the attempt that failed to the next one."""
        return self.ms


@dataclass(frozen=True, slots=True)
class Steps:
    """The n-th delay after the n-th attempt, the last one ever after: 1 to 100 of 0 to ten years."""

    ms: tuple[int, ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.ms) <= MAX_STEPS:
            raise _wrong_length(len(self.ms))
        for step in self.ms:
            _check_ms(step)

    def delay_ms(self, attempt: int, error: BaseException | None, rand: Random) -> int:
        """Milliseconds from the attempt that failed to the next one."""
        return self.ms[min(max(attempt, 1), len(self.ms)) - 1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exponential:
    """`base_ms` after the first attempt, `factor` times as much after each further one, at most `cap_ms`.

    With `jitter` the delay is drawn evenly from an octave instead: from that step up to twice the step, or,
    where the cap cuts that short, from half the cap up to the cap. So jobs that failed together come back
    apart, also at the cap, and never before the smaller of `base_ms` and half of `cap_ms`.
    """

    base_ms: int = 5_000
    factor: float = 2.0
    cap_ms: int = 3_600_000
    jitter: bool = True

    def __post_init__(self) -> None:
        _check_ms(self.base_ms, least=1)
        _check_ms(self.cap_ms, least=1)
        if self.base_ms > self.cap_ms:
            raise InvalidInput(
                f"A backoff cannot start at {format_duration(self.base_ms)} and end at {format_duration(self.cap_ms)}.",
                hint="Lower base_ms or raise cap_ms.",
            )
        if not _is_number(self.factor) or not 1 <= self.factor <= MAX_FACTOR:
            raise InvalidInput(f"{shown(self.factor)} is no backoff factor.", hint=f"Use a number, 1 to {MAX_FACTOR}.")
        if not isinstance(self.jitter, bool):
            raise InvalidInput(f"{shown(self.jitter)} says nothing about jitter.", hint="Use true or false.")

    def delay_ms(self, attempt: int, error: BaseException | None, rand: Random) -> int:
        """Milliseconds from the attempt that failed to the next one."""
        step = self._step(attempt)
        if not self.jitter:
            return math.ceil(step)
        top = min(2 * step, float(self.cap_ms))
        return min(math.ceil(top / 2 * (1 + rand())), self.cap_ms)

    def _step(self, attempt: int) -> float:
        try:
            return min(self.base_ms * float(self.factor) ** (max(attempt, 1) - 1), float(self.cap_ms))
        except OverflowError:
            return float(self.cap_ms)


@dataclass(frozen=True, slots=True)
class Computed:
    """Whatever `function(attempt, error)` says: a duration ('5m') or a timedelta.

    What the function raises goes through to the caller. What it returns is checked like every duration:
    InvalidDuration names the function.
    """

    function: BackoffFunction

    def __post_init__(self) -> None:
        if inspect.iscoroutinefunction(self.function):
            raise InvalidInput(f"The backoff function {_name(self.function)} is async.", hint="Make it a plain def.")

    def delay_ms(self, attempt: int, error: BaseException | None, rand: Random) -> int:
        """Milliseconds from the attempt that failed to the next one."""
        said = self.function(max(attempt, 1), error)
        try:
            return duration_ms(said)
        except InvalidDuration as refused:
            raise InvalidDuration(
                f"The backoff function {_name(self.function)} gave no delay: {refused.message}", hint=refused.hint
            ) from refused


Backoff: TypeAlias = Fixed | Steps | Exponential | Computed
BackoffSpec: TypeAlias = Backoff | str | timedelta | Sequence[str | timedelta] | BackoffFunction

DEFAULT: Final = Exponential(base_ms=5_000, factor=2.0, cap_ms=3_600_000, jitter=True)

LADDER: Final = Steps(tuple((2 * n + 1) * 60_000 for n in range(24)))
"""1, 3, 5 … 47 minutes, as senders of webhooks like it: n failed attempts have taken n² minutes (up to the 24th)."""
PRESETS: Final[Mapping[str, Backoff]] = MappingProxyType({"ladder": LADDER})
"""Backoffs that have a name, wherever one is written as text."""


def parse_backoff(spec: BackoffSpec) -> Backoff:
    """What a job class, a setting or `--backoff` says; raises InvalidDuration or InvalidInput."""
    if isinstance(spec, Fixed | Steps | Exponential | Computed):
        return spec
    if isinstance(spec, str):
        if spec in PRESETS:
            return PRESETS[spec]
        return _parse_steps(spec.split(",", MAX_STEPS)) if "," in spec else Fixed(duration_ms(spec))
    if isinstance(spec, timedelta):
        return Fixed(duration_ms(spec))
    if isinstance(spec, Sequence) and not isinstance(spec, bytes | bytearray | memoryview):
        return _parse_steps(spec)
    if callable(spec) and not isinstance(spec, type):
        return Computed(spec)
    raise InvalidInput(f"{shown(spec)} is no backoff.", hint=_HINT)


def to_wire(backoff: Backoff) -> WireBackoff:
    """The JSON form for an envelope; raises InvalidInput for a computed one, which has none."""
    match backoff:
        case Fixed(ms):
            return ms
        case Steps(steps):
            return list(steps)
        case Exponential():
            return {
                "base_ms": backoff.base_ms,
                "factor": backoff.factor,
                "cap_ms": backoff.cap_ms,
                "jitter": backoff.jitter,
            }
        case Computed(function):
            raise InvalidInput(
                f"The backoff function {_name(function)} cannot travel with a job.",
                hint="Declare it where the handler is registered, or use durations.",
            )
        case _:
            assert_never(backoff)


def from_wire(value: object) -> Fixed | Steps | Exponential:
    """The backoff an envelope carries; raises BadEnvelope.

    Of the exponential form, members that are absent have their defaults and unknown ones are left alone.
    """
    try:
        if isinstance(value, list):
            return Steps(tuple(value))
        if isinstance(value, dict):
            known = ("base_ms", "factor", "cap_ms", "jitter")
            return Exponential(**{name: value[name] for name in known if name in value})
        return Fixed(value)  # type: ignore[arg-type]  # checked by the class itself
    except InvalidInput as refused:
        raise BadEnvelope(f"The envelope's backoff cannot be used: {refused.message}") from refused


def _parse_steps(steps: Sequence[str | timedelta]) -> Steps:
    if len(steps) > MAX_STEPS:  # before any of them is read
        raise _wrong_length(len(steps))
    return Steps(tuple(duration_ms(step) for step in steps))


def _wrong_length(steps: int) -> InvalidInput:
    count = f"more than {MAX_STEPS}" if steps > MAX_STEPS else "no"
    return InvalidInput(f"A backoff with {count} steps cannot be used.", hint=f"Give 1 to {MAX_STEPS} durations.")


def _name(function: object) -> str:
    qualified = getattr(function, "__qualname__", None) or type(function).__qualname__
    return shown(str(qualified).rpartition("<locals>.")[2])
