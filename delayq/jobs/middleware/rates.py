"""Definitions of rate limits, as `use_limit` and `RateLimited` take them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from delayq.core.errors import ConfigError
from delayq.core.rate_limit import RateLimit
from delayq.jobs.middleware.running_job import RunningJob

Rates: TypeAlias = RateLimit | Sequence[RateLimit] | None
Definition: TypeAlias = Rates | Callable[[RunningJob], Rates]
"""One rate, or several that must all let a job through, or a function of the job that says which; None = unlimited."""

MOST_RATES = 20


def rates_of(name: str, rates: object) -> tuple[RateLimit, ...]:
    """As a tuple; raises `ConfigError` for anything else."""
    several = () if rates is None else (rates,) if isinstance(rates, RateLimit) else rates
    if (
        isinstance(several, Sequence)
        and len(several) <= MOST_RATES
        and all(isinstance(rate, RateLimit) for rate in several)
    ):
        return tuple(several)
    raise ConfigError(
        f"The limit {name!r} is defined as {type(rates).__name__}.",
        hint=f"Give a RateLimit, a list of at most {MOST_RATES}, None for unlimited, or a function of the job.",
    )


def checked_definition(name: str, definition: Definition) -> Definition:
    """A definition; raises `ConfigError` for what is none."""
    if not callable(definition):
        rates_of(name, definition)
    return definition
