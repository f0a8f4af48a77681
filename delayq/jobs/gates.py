"""Gates: functions of the application that may say "not now", and then no worker of it fetches.

    @gate
    def the_bank_is_open() -> bool:
        return 8 <= datetime.now().hour < 18

Each is asked in every child process between two fetches, at most four times a second, so it must answer at once.
Returning `False` closes it; anything else, also nothing, leaves it open. One that raises counts as closed.
"""

from __future__ import annotations

from typing import TypeVar

from delayq.jobs.registry import Gate, current

__all__ = ["Gate", "gate"]

G = TypeVar("G", bound=Gate)


def gate(function: G) -> G:
    """Register a gate; the function itself stays as it is."""
    current().add_gate(function)
    return function
