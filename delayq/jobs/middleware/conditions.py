"""What middleware asks of a job or of an error: known, a function, or, where it can be awaited, an async function."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

from delayq.core.errors import ConfigError
from delayq.core.shown import shown
from delayq.jobs.middleware.running_job import RunningJob

Condition: TypeAlias = bool | Callable[[RunningJob], bool | Awaitable[bool]]
"""Known, or asked of the job at each attempt; an async function around async handlers only."""

_PLAIN: Final = "Make it a plain function: a coroutine is neither true nor false."


def holds(condition: Condition, job: RunningJob) -> bool:
    """Whether a condition holds now. Raises `ConfigError` for an async one."""
    if not callable(condition):
        return condition
    return at_once(condition(job), f"The middleware of {job.name!r} has an async condition, and the handler is plain.")


async def aholds(condition: Condition, job: RunningJob) -> bool:
    """As `holds`, awaited where it has to be."""
    answer = condition(job) if callable(condition) else condition
    return bool(await answer) if inspect.isawaitable(answer) else bool(answer)


def at_once(answer: object, why_not: str) -> bool:
    """An answer as true or false. Raises `ConfigError` for one that would have to be awaited."""
    if inspect.isawaitable(answer):
        if inspect.iscoroutine(answer):
            answer.close()
        raise ConfigError(why_not, hint=_PLAIN)
    return bool(answer)


def refuse_async(owner: str, *tests: Any) -> None:
    """Raises `ConfigError` for an async function where an error is judged: nobody waits there."""
    for test in tests:
        if inspect.iscoroutinefunction(test) or inspect.iscoroutinefunction(getattr(type(test), "__call__", None)):  # noqa: B004
            raise ConfigError(f"{owner} was given the async function {shown(test)}.", hint=_PLAIN)
