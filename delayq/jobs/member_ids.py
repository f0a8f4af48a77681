"""Ids of what a batch is made of.

A batch that was given an id gives ids to its members by their place, so that the same one dispatched again, perhaps by
another process, has the same members. What a running job adds to its batch has ids by that job and the place, so that
a later attempt adds the same. Otherwise all ids are new.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

from delayq.core.names import new_id

LONGEST: Final = 200
"""Longer ids are shortened to a digest: an id has 255 characters, and callbacks may need an ending of their own."""


@dataclass(frozen=True, slots=True)
class Ids:
    """The id at a place, and of what lies below it; `root` None: a new one for everything."""

    root: str | None = None

    def at(self, place: int | str) -> Ids:
        """Of a part. Numbers are padded: what falls due together runs in the order of its ids."""
        if self.root is None:
            return self
        path = f"{self.root}.{place:06}" if isinstance(place, int) else f"{self.root}.{place}"
        return Ids(path if len(path) <= LONGEST else hashlib.sha256(path.encode()).hexdigest())

    def make(self) -> str:
        """The id itself."""
        return new_id() if self.root is None else self.root


NEW: Final = Ids()
