"""One delivery in the hands of a child."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from delayq.core.outcome import Outcome
from delayq.drivers.base import Delivery


class Held(msgspec.Struct, eq=False):
    """It lies in `slot`, since `generation`, and was asked for at `read_at`.

    `interrupter` raises into it while it runs; `interrupt` is what was raised, once `told`.

    `asked_at`: when its handler last asked whether it shall stop. `deadline_at`: when its deadline passes (boot clock),
    0 = it has none; unlike a timeout it is not moved by a standstill. `ended_as`: the word for its end where the
    outcome alone does not say it.
    """

    delivery: Delivery
    slot: int
    read_at: float
    generation: int
    outcome: Outcome | None = None
    interrupt: BaseException | None = None
    interrupter: Callable[[Held, BaseException], None] | None = None
    told: bool = False
    asked_at: float = 0.0
    resent: bool = False
    deadline_at: float = 0.0
    ended_as: str = ""

    def __repr__(self) -> str:
        """Without the envelope: a payload has no business in a log."""
        return f"Held(id={self.delivery.id!r}, slot={self.slot})"
