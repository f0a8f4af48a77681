"""Which nodes of a cluster hang: they take what is sent to them, and answer nothing.

A node that is gone says so at once, and costs nobody anything. One that hangs costs everybody who asks it as long as
an answer may take, and those who look after queues on other nodes too have no time for that. So whoever finds one
tells it here, and from then on nothing is sent to it until it has answered a question, which waits for that beside all
else: nobody waits with it.

    met ──▶ asked (PING) ──┬─▶ something comes, or the connection ends     it hangs no longer: others will find out
                           └─▶ nothing for a second                        asked anew: packets may have been lost
"""

from __future__ import annotations

import select
import socket
import time
from typing import Final

from delayq.redis.slots import Address

AGAIN_S: Final = 1.0

_PING: Final = b"PING\r\n"


class Hanging:
    """Of the nodes that one process talks to. May be asked from any thread, and after a fork: nothing is read here."""

    def __init__(self) -> None:
        self._asked: dict[Address, _Question] = {}

    def met(self, address: Address) -> None:
        """It gave no answer in time."""
        if address not in self._asked:
            self._asked[address] = _Question(address)

    def __contains__(self, address: Address) -> bool:
        """Whether it hangs, as far as one can see without waiting."""
        question = self._asked.get(address) if self._asked else None
        if question is None:
            return False
        if question.is_over():
            self._asked.pop(address, None)
            return False
        if time.monotonic() - question.since > AGAIN_S:
            self._asked[address] = _Question(address)
        return True


class _Question:
    """One PING, on a connection of its own that nobody waits for.

    Written as the words of a person, which every server reads before it knows who asks: whatever comes back, also a
    refusal, or the end that a server which wants TLS makes of it, is an answer.
    """

    def __init__(self, address: Address) -> None:
        self.since = time.monotonic()
        """When it was asked; before that, when it began to be."""
        self._socket: socket.socket | None = None
        self._said = False
        try:
            family, kind, protocol, _, place = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)[0]
            self._socket = socket.socket(family, kind, protocol)
            self._socket.setblocking(False)
            self._socket.connect_ex(place)
            self.is_over()  # connected already, as on the same machine: said at once
        except OSError:  # it cannot even be tried: whoever does so next hears why
            self._close()

    def is_over(self) -> bool:
        """Whether there is anything for an answer."""
        if self._socket is None:
            return True
        poll = select.poll()
        poll.register(self._socket, select.POLLIN | (0 if self._said else select.POLLOUT))
        events = sum(event for _, event in poll.poll(0))
        writable, over = events & select.POLLOUT, events & ~select.POLLOUT
        if writable and not over:
            try:
                self._socket.send(_PING)
            except OSError:
                return True
            self._said, self.since = True, time.monotonic()
        return bool(over)

    def _close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def __del__(self) -> None:
        self._close()
