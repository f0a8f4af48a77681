"""What is known of each job of a lot while it is sent: the one account of it, whatever ends the sending."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import Enum, auto
from typing import Final

from delayq.core.errors import DelayqError, NotConfirmed, OutcomeUnknown

PERHAPS: Final = (OutcomeUnknown, NotConfirmed)
"""Errors after which a job may be there. Every other one of ours says that nothing was taken."""


class Arrival(Enum):
    """Where a job of the lot is, as far as its target is concerned.

    unsent: surely not there. unsure: a send was begun, and nobody knows. there. refused: not there, and never will be.
    """

    UNSENT = auto()
    UNSURE = auto()
    THERE = auto()
    REFUSED = auto()


class Taking:
    """Of one lot; its jobs go by their places in it, because two of them may have one id."""

    def __init__(self, count: int) -> None:
        self._arrivals = [Arrival.UNSENT] * count
        self.whys: dict[int, str] = {}

    def places(self, *arrivals: Arrival) -> list[int]:
        """Those of whom one of these is true."""
        return [place for place, arrival in enumerate(self._arrivals) if arrival in arrivals]

    @contextmanager
    def sending(self, places: Sequence[int], *, partly: bool = False) -> Iterator[None]:
        """They are being sent inside the block. An error that says that nothing was taken leaves them unsent.

        `partly`: such an error speaks of a part of them only.
        """
        self._mark(places, Arrival.UNSURE)
        try:
            yield
        except DelayqError as error:
            if not partly and not isinstance(error, PERHAPS):
                self._mark(places, Arrival.UNSENT)
            raise

    def there(self, place: int) -> None:
        """It has arrived."""
        self._mark([place], Arrival.THERE)

    def refuse(self, place: int, why: str) -> None:
        """It cannot go there."""
        self._mark([place], Arrival.REFUSED)
        self.whys[place] = why

    def _mark(self, places: Sequence[int], arrival: Arrival) -> None:
        for place in places:
            self._arrivals[place] = arrival
