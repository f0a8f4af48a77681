"""Middleware that asks before it calls the handler, written once: a generator that yields what to do next.

It yields a `Question`, or `CALL` for what follows it, and gets the answer, or what was raised, at that place. The two
functions here run it: around plain handlers, and awaited around async ones.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Final, TypeAlias

from delayq.core.limiting import Limits, Question


class Call:
    """The rest of the way to the handler."""


CALL: Final = Call()
Steps: TypeAlias = Generator[Question[Any] | Call, Any, Any]


def run(steps: Steps, limits: Limits, following: Callable[[], Any]) -> Any:
    """Around a plain handler; the generator's result."""
    try:
        step = next(steps)
        while True:
            try:
                answer = following() if step is CALL else limits.ask(_question(step))
            except BaseException as error:  # noqa: BLE001  (it is raised again where it was asked for)
                step = steps.throw(error)
            else:
                step = steps.send(answer)
    except StopIteration as done:
        return done.value


async def arun(steps: Steps, limits: Limits, following: Callable[[], Any]) -> Any:
    """As `run`, awaited."""
    try:
        step = next(steps)
        while True:
            try:
                answer = await following() if step is CALL else await limits.aask(_question(step))
            except BaseException as error:  # noqa: BLE001
                step = steps.throw(error)
            else:
                step = steps.send(answer)
    except StopIteration as done:
        return done.value


def _question(step: Question[Any] | Call) -> Question[Any]:
    assert isinstance(step, Question), "a step is a question, or CALL"
    return step
