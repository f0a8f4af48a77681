"""Which batches are being settled above, so that batches in each other do not settle each other without end.

What becomes of an inner batch is told to the outer one, and a cancel of the outer one to all inner ones: each may find
the other at work. Then it only writes down what it has to say, and whoever is at it looks once more when he is done.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Walk:
    """One visit to some batches."""

    settling: set[str] = field(default_factory=set)
    touched: set[str] = field(default_factory=set)

    def may_settle(self, batch: str) -> bool:
        """Whether nobody above is at it; who is hears that there is more."""
        if batch in self.settling:
            self.touched.add(batch)
            return False
        return True

    def enter(self, batch: str) -> None:
        """It is being settled."""
        self.settling.add(batch)
        self.touched.discard(batch)

    def leave(self, batch: str) -> bool:
        """It has been; whether there was more meanwhile."""
        self.settling.discard(batch)
        return batch in self.touched
