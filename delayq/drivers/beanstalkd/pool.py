"""Connections for whoever has one thing to say: producers, supervisors, commands. One thread has one at a time."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from delayq.drivers.beanstalkd.line import Line


class Pool:
    """Lends lines. What a process inherited by a fork is its parent's conversation: it is closed, never used."""

    def __init__(self, make: Callable[[], Line]) -> None:
        self._make = make
        self._pid = os.getpid()
        self._idle: deque[Line] = deque()

    @contextmanager
    def line(self) -> Iterator[Line]:
        """A line of one's own inside the block."""
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self.close()
        try:
            line = self._idle.pop()
        except IndexError:
            line = self._make()
        try:
            yield line
        finally:
            line.held.clear()
            self._idle.append(line)

    def close(self) -> None:
        """Close those that nobody uses."""
        while self._idle:
            self._idle.pop().session.drop()
