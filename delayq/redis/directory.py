"""What a process knows of a cluster: who has which slot, which nodes there are, which gave trouble lately.

All clients of a connector share one, also those that replace each other. It is read and replaced without a lock: a
map is never changed in place, and one learnt twice does no harm.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

from redis.exceptions import AskError

from delayq.redis.slots import Address, SlotMap, read_slots


class Directory:
    """Begins with the addresses of the URL and forgets none that it learns while they are in the map."""

    def __init__(self, seeds: Sequence[Address]) -> None:
        self.seeds = tuple(seeds)
        self.map = SlotMap()
        self.doubted = True
        """The map has to be read anew before it is trusted."""
        self._suspects: tuple[Address, ...] = ()

    def doubt(self, address: Address | None = None) -> None:
        """Something was not as the map says; `address` did not answer, and is asked last."""
        self.doubted = True
        if address is not None:
            self._suspects = (*(one for one in self._suspects if one != address), address)

    def learn(self, reply: Sequence[Any], asked: Address) -> bool:
        """Take over what a node told; whether that is a map at all."""
        found = read_slots(reply, asked)
        if not found.primaries:
            return False
        self.map, self.doubted = found, False
        self._suspects = tuple(one for one in self._suspects if one != asked)
        return True

    def moved(self, error: AskError, asked: Address) -> Address:
        """What a node said that has a slot no more: who has it. Not for ASK, which holds for one command only."""
        address = told(error, asked)
        self.map = self.map.moved(int(error.slot_id), address)
        return address

    def owner(self, slot: int) -> Address | None:
        """Who has a slot; None while nobody is known to."""
        return self.map.owners[slot]

    def anyone(self) -> Address:
        """A node for what any of them can answer; one that gave no trouble, if there is one."""
        known = self.map.primaries or self.seeds
        return random.choice([one for one in known if one not in self._suspects] or list(known))

    def witnesses(self) -> Iterator[Address]:
        """Whom to ask for the map: all that are known, each once, those that gave trouble last."""
        known = [*self.map.primaries, *self.map.replicas, *self.seeds]
        random.shuffle(known)
        known.sort(key=lambda one: self._suspects.index(one) if one in self._suspects else -1)
        yield from dict.fromkeys(known)


def told(error: AskError, asked: Address) -> Address:
    """Where a redirection points to; one without a host means the host that was asked."""
    return (str(error.host) or asked[0], int(error.port))
