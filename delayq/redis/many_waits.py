"""Blocking reads side by side: a cluster lets one command wait for streams of one slot only.

Each slot gets a read on a connection of its own, and the first that brings something ends the others with CLIENT
UNBLOCK, so that none of them takes an entry while nobody looks. One that took an entry a moment before brings it along.

More slots than `MOST` are waited for in turns; entries in the others are found by the next read that does not block.
"""

from __future__ import annotations

import select
import time
from collections.abc import Iterable, Sequence
from typing import Any, Final

from redis.exceptions import AskError, RedisError, ResponseError

from delayq.redis.direct import GroupRead, Heard, OneServer, Trip

MOST: Final = 24
MARGIN_S: Final = 1.0
"""Redis ends a block up to a tenth of a second late; a node that is later than this has not answered."""
ASIDE_S: Final = 0.05
"""A slot on its way to another node cannot be waited for; so long it is left alone."""

Side = tuple[OneServer, Sequence[str]]


class _Read:
    """One read: first its connection's name is asked, then it waits."""

    __slots__ = ("_trip", "client_id", "node", "reply", "streams")

    def __init__(self, side: Side) -> None:
        self.node, self.streams = side
        self._trip: Trip | None = None
        self.client_id: Any = None
        self.reply: Any = None

    def call(self) -> None:
        """Ask for the name."""
        try:
            self._trip = self.node.post((("CLIENT", "ID"),))
        except (RedisError, OSError) as error:
            self.reply = error

    @property
    def socket(self) -> int | None:
        """Where its reply will come in; None when it is over."""
        return None if self._trip is None else int(self._trip.connection._sock.fileno())

    def begin(self, read: GroupRead, by: float | None) -> None:
        """Take the name, and wait."""
        if self._trip is not None:
            try:
                [self.client_id] = self._trip.hear(by)
                self._trip.say((read.words(self.streams),))
            except (RedisError, OSError) as error:
                self._trip, self.reply = None, error

    def end(self, by: float | None = None) -> None:
        """Take the reply."""
        if self._trip is not None:
            trip, self._trip = self._trip, None
            try:
                [self.reply] = trip.replies(by)
            except (RedisError, OSError) as error:
                self.reply = error

    def lost(self, error: Exception) -> None:
        """Its node does not even answer to being asked to end it."""
        self.abandon()
        self.reply = error

    def abandon(self) -> None:
        """Give it up."""
        trip, self._trip = self._trip, None
        if trip is not None:
            trip.abandon()


def wait_on_each(sides: Sequence[Side], read: GroupRead, silent_s: float | None = None) -> list[Heard]:
    """Read the streams of every side until one has something or the block is over; what each brought.

    Nodes that are asked something have `silent_s` seconds to begin to answer; None: as long as an answer may take.
    """
    turn = int(time.monotonic() * 10) % len(sides) if len(sides) > MOST else 0
    reads = [_Read(side) for side in (*sides[turn:], *sides[:turn])[:MOST]]
    try:
        for one in reads:
            one.call()
        by = _by(silent_s)
        for one in reads:
            one.begin(read, by)
        _until_one_brings(reads, time.monotonic() + read.block_ms / 1000 + MARGIN_S)
        by = _by(silent_s)
        _unblock([one for one in reads if one.socket is not None], by)
        for one in reads:
            one.end(by)
    finally:
        for one in reads:
            one.abandon()
    if any(isinstance(one.reply, AskError) for one in reads) and not any(_brought(one.reply) for one in reads):
        time.sleep(ASIDE_S)
    said = {one.streams: one.reply for one in reads}
    return [Heard(streams, said.get(streams)) for _, streams in sides]


def _by(silent_s: float | None) -> float | None:
    return None if silent_s is None else time.monotonic() + silent_s


def _until_one_brings(reads: Iterable[_Read], end: float) -> None:
    """Take replies as they come; nothing, and a node that is lost, are no reason to stop the others."""
    under_way = {number: one for one in reads if (number := one.socket) is not None}
    poll = select.poll()
    for number in under_way:
        poll.register(number, select.POLLIN)
    while under_way and (left := end - time.monotonic()) > 0:
        for number, _ in poll.poll(left * 1000):
            one = under_way.pop(number)
            poll.unregister(number)
            one.end()
            if _brought(one.reply) or isinstance(one.reply, ResponseError):
                return


def _unblock(reads: Iterable[_Read], by: float | None) -> None:
    """End these waits, each node asked once; where that is not allowed they are over soon all the same."""
    of_node: dict[OneServer, list[_Read]] = {}
    for one in reads:
        of_node.setdefault(one.node, []).append(one)
    asked: list[tuple[Trip, list[_Read]]] = []
    try:
        for node, some in of_node.items():
            try:
                asked.append((node.post([("CLIENT", "UNBLOCK", one.client_id) for one in some]), some))
            except (RedisError, OSError) as error:
                for one in some:
                    one.lost(error)
        while asked:
            trip, some = asked.pop(0)
            try:
                trip.replies(by)
            except (RedisError, OSError) as error:
                for one in some:
                    one.lost(error)
    finally:
        for trip, _ in asked:
            trip.abandon()


def _brought(reply: Any) -> bool:
    return bool(reply) and not isinstance(reply, Exception)
