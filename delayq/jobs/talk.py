"""How one running job and its worker talk: made when the job first asks for it, because few do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from delayq.core.limiting import Limits
from delayq.jobs.stopping import Stopping
from delayq.jobs.teller import Teller


class Line(Protocol):
    """The worker's end. `held` is what it calls the delivery."""

    @property
    def limits(self) -> Limits | None:
        """Who knows the limits, if anybody does."""

    def listener(self) -> Stopping:
        """How one attempt hears of the end of the worker."""

    def teller(self, held: Any) -> Teller:
        """How one attempt tells of how far it is."""


class Talk:
    """Of one attempt; outside of a worker nobody is at the other end, but perhaps somebody who knows the limits.

    `seal` hides partial results.
    """

    __slots__ = ("_held", "_limits", "_line", "_seal", "_stopping", "_teller")

    def __init__(
        self,
        line: Line | None = None,
        held: Any = None,
        seal: Callable[[bytes], bytes] | None = None,
        limits: Limits | None = None,
    ) -> None:
        self._line = line
        self._limits = limits
        self._held = held
        self._seal = seal
        self._stopping: Stopping | None = None
        self._teller: Teller | None = None

    @property
    def stopping(self) -> Stopping:
        """See `JobContext.stopping`."""
        if self._stopping is None:
            self._stopping = Stopping() if self._line is None else self._line.listener()
        return self._stopping

    @property
    def limits(self) -> Limits | None:
        """Who knows the limits; None where no job waits for another."""
        return self._limits if self._line is None else self._line.limits

    @property
    def teller(self) -> Teller:
        """See `JobContext.progress`."""
        if self._teller is None:
            self._teller = Teller() if self._line is None else self._line.teller(self._held)
            self._teller.seal = self._seal
        return self._teller
