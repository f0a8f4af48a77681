"""The answer of a backend that cannot count for jobs: a sentence."""

from __future__ import annotations

from typing import TypeVar

from delayq.core.errors import ConfigError
from delayq.core.limiting import Question
from delayq.core.signals import Fail
from delayq.drivers.capabilities import ELSEWHERE

T = TypeVar("T")


class NoLimits:
    """`Limits` of a connection that has none. A job that asks fails for good: asked again, the answer is the same."""

    lacks = "no limits and no locks"

    def __init__(self, connection: str) -> None:
        self._connection = connection

    def ask(self, question: Question[T], /) -> T:
        """Refuse."""
        raise self._error(question)

    async def aask(self, question: Question[T], /) -> T:
        """Refuse."""
        raise self._error(question)

    def _error(self, question: Question[T]) -> Fail:
        error = ConfigError(
            f"The connection {self._connection!r} keeps {self.lacks}, and the job asked for one "
            f"({type(question).__name__}).",
            hint=ELSEWHERE,
        )
        return Fail(error)
