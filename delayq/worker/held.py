"""One delivery in the hands of a child."""

from __future__ import annotations

from collections.abc import Callable

from delayq.core.outcome import Outcome
from delayq.drivers.base import Delivery


class Held:
    """It lies in `slot` and was asked for at `read_at`.

    `interrupter` raises into it while it runs; `interrupt` is what was raised, once `told`.

    `asked_at`: when its handler last asked whether it shall stop.
    """

    __slots__ = (
        "asked_at",
        "delivery",
        "generation",
        "interrupt",
        "interrupter",
        "outcome",
        "read_at",
        "resent",
        "slot",
        "told",
    )

    def __init__(self, delivery: Delivery, slot: int, read_at: float) -> None:
        self.delivery = delivery
        self.slot = slot
        self.read_at = read_at
        self.generation = 0
        self.outcome: Outcome | None = None
        self.interrupt: BaseException | None = None
        self.interrupter: Callable[[Held, BaseException], None] | None = None
        self.told = False
        self.asked_at = 0.0
        self.resent = False
