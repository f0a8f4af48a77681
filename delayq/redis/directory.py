"""What a process knows of a cluster: who has which slot, which nodes there are, which gave trouble lately.

All clients of a connector share one, also those that replace each other. It is read and replaced without a lock: a
map is never changed in place, and one learnt twice does no harm. Only one thread at a time reads it from a node, and
not at once again: hundreds that meet the same trouble would each open a connection for it.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from redis.exceptions import AskError

from delayq.redis.faults import NothingSent, is_silence
from delayq.redis.hanging import Hanging
from delayq.redis.slots import Address, SlotMap, read_slots

LOOK_EVERY_S: Final = 0.25
"""A map that is doubted again is not read sooner. What it says wrongly a node corrects (MOVED), or the next look."""


class _Looks:
    """The looks at the map in one process: whose turn it is, when the last one ended, and what it was told in vain."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.turn = threading.Lock()
        self.ended_at = float("-inf")
        self.trouble = ""


class Directory:
    """Begins with the addresses of the URL and forgets none that it learns while they are in the map."""

    def __init__(self, seeds: Sequence[Address]) -> None:
        self.seeds = tuple(seeds)
        self.map = SlotMap()
        self.hanging = Hanging()
        self.doubted = True
        """The map has to be read anew before it is trusted."""
        self._suspects: tuple[Address, ...] = ()
        self._looks = _Looks()

    def doubt(self, address: Address | None = None) -> None:
        """Something was not as the map says; `address` did not answer, and is asked last."""
        self.doubted = True
        if address is not None:
            self._suspects = (*(one for one in self._suspects if one != address), address)

    def lost(self, address: Address, error: Exception) -> None:
        """A node could not be asked, or did not answer."""
        self.doubt(address)
        if is_silence(error):
            self.hanging.met(address)

    def look(self, read: Callable[[], None]) -> None:
        """Have the map read, if it is doubted: by one thread, and the others take what that one found.

        `read` learns it, or raises `NothingSent`; so does this, for all who ask within the next moment.
        """
        looks = self._looks
        if looks.pid != os.getpid():  # a fork copies a lock as it is, and nobody would open it
            looks = self._looks = _Looks()
        with looks.turn:
            if self.is_look_due():
                with self.looking():
                    read()

    def is_look_due(self) -> bool:
        """Whether the map is doubted, and was not just read. Raises `NothingSent` if that was in vain."""
        looks = self._looks
        if not self.doubted:
            return False
        due = time.monotonic() - looks.ended_at >= LOOK_EVERY_S
        if looks.trouble and not due:
            raise NothingSent(looks.trouble)
        return due

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Around a look: when it ended, and what it was told in vain."""
        looks = self._looks
        looks.trouble = ""
        try:
            yield
        except NothingSent as error:
            looks.trouble = str(error)
            raise
        finally:
            looks.ended_at = time.monotonic()

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
        well = [one for one in known if one not in self._suspects and one not in self.hanging]
        return random.choice(well or list(known))

    def witnesses(self) -> Iterator[Address]:
        """Whom to ask for the map: all that are known, each once, those that gave trouble last.

        Primaries are asked first: that a replica hangs nobody may have noticed yet.
        """
        known, replicas = [*self.map.primaries, *self.seeds], list(self.map.replicas)
        random.shuffle(known)
        random.shuffle(replicas)
        known = [*(one for one in known if one not in replicas), *replicas]
        known.sort(key=lambda one: self._suspects.index(one) if one in self._suspects else -1)
        yield from dict.fromkeys(known)


def told(error: AskError, asked: Address) -> Address:
    """Where a redirection points to; one without a host means the host that was asked."""
    return (str(error.host) or asked[0], int(error.port))
