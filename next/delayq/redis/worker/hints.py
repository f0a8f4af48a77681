"""Notifications (called hints in the code): pub/sub messages that wake a waiting process.

Scripts publish notifications, and a message has two words (`delayq` is the default prefix):

    channel          message              meaning                                                receiver
    delayq:wake      `<queue> <due_ms>`   the queue has a job that is due earlier than its       movers, relays
                                          other jobs, its pause has changed, or its outbox
                                          has a new record
    delayq:cancel    `<queue> <id>`       a cancel asked a reserved job to stop                  supervisors

A notification can get lost. No notification is needed for correctness, because each receiver also asks Redis at regular
intervals.
"""

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from redis.connection import AbstractConnection
from redis.exceptions import NoPermissionError, RedisError

from delayq.core.errors import LoginRefused
from delayq.redis.connection.factory import locator
from delayq.redis.connection.leaf import ConnectionLost
from delayq.redis.connection.url import Address

if TYPE_CHECKING:
    from delayq.redis.connection.factory import AnyAddress

logger: Final = logging.getLogger("delayq.worker")

EXACT: Final = 0.002
"""A wait for the socket ends this many seconds early, and the rest of the time is slept, because a wait for a socket is
only exact to a millisecond.
"""

RECONNECT_PAUSE: Final = 0.5
"""Shortest pause after a failed connection before the next attempt to connect, in seconds."""

FIRST_CHECK: Final = 1.0
LONGEST_CHECK: Final = 16.0
"""A subscription is checked by a PING after FIRST_CHECK seconds of silence. The pause doubles up to LONGEST_CHECK."""

TRY_TIMEOUT: Final = 0.5
"""How long a try to connect, and the reply to a PING, may take, in seconds.

The time is short, because a supervisor does nothing else while it connects.
"""


class Hints:
    """A subscription to one channel. After a failure, a later `wait` connects again.

    `consequence`: the effect of missing notifications, for the log. Only the first refused subscription is logged.
    `is_checked`: if the address has several servers, notice that the server of the subscription hangs. The other
    servers may still work, but their notifications do not arrive. `server`: returns the address, without secrets, of
    the server to which the process sends its calls, or ''. When this address changes, the subscription follows, because
    a primary that sentinels have replaced may still answer.
    """

    def __init__(
        self,
        address: "AnyAddress",
        channel: str,
        *,
        consequence: str = "",
        is_checked: bool = False,
        server: Callable[[], str] = str,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._locate = locator(address)
        self._connection: AbstractConnection | None = None
        self._where = address.masked
        self._channel = channel
        self._consequence = consequence
        self._told = False
        self._sleep = sleep
        self._connect_at = 0.0
        self._is_checked = is_checked and not isinstance(address, Address)
        self._check_pause = FIRST_CHECK
        self._check_at = 0.0
        self._is_asked = False
        self._server = server
        self._known = {"", address.masked}

    @property
    def is_subscribed(self) -> bool:
        """True if notifications arrive, as far as is known."""
        return self._connection is not None

    def wait(self, seconds: float) -> list[tuple[str, str]]:
        """Wait up to `seconds` for a notification. Return the two words of each notification that has arrived.

        If Redis cannot be reached, or refuses the login or the subscription, no error is raised: sleep for at most half
        a second, and return an empty list. When the subscription begins or is lost, return an empty list at once.
        """
        if self.is_subscribed and self._server() not in self._known:
            self._disconnect()
            return []
        was_subscribed = self.is_subscribed
        pause = self._connect_at - time.monotonic()
        if not was_subscribed and pause > 0:
            self._sleep(min(seconds, pause))
            return []
        try:
            connection = self._connection
            if connection is None:
                self._subscribe()
                return []
            if self._is_checked:
                seconds = min(seconds, self._check(connection))
            if not connection.can_read(timeout=max(seconds - EXACT, 0)):
                self._sleep(min(seconds, EXACT))
                return []
            hints = _read_all(connection)
            self._note_answer(has_hints=bool(hints))
            return hints
        except (RedisError, ConnectionLost, LoginRefused):
            self._disconnect()
            self._connect_at = time.monotonic() + RECONNECT_PAUSE
            if not was_subscribed:
                self._sleep(min(seconds, RECONNECT_PAUSE))
            return []

    def _subscribe(self) -> None:
        address = self._locate()
        self._known = {"", self._where, address.masked, self._server()}
        self._connection = connection = address.blocking_connection(TRY_TIMEOUT)
        connection.connect()
        connection.send_command("SUBSCRIBE", self._channel)
        try:
            connection.read_response()
        except NoPermissionError as error:
            self._warn_refused(error)
            raise
        self._note_answer(has_hints=True)

    def _check(self, connection: AbstractConnection) -> float:
        """Send a PING if it is due, and return the seconds until the next check. Raises RedisError without a reply."""
        now = time.monotonic()
        if now >= self._check_at:
            if self._is_asked and not connection.can_read(timeout=0):
                raise RedisError("the server of the subscription hangs")
            if not self._is_asked:
                connection.send_command("PING")
                self._is_asked = True
                self._check_at = now + TRY_TIMEOUT
        return max(self._check_at - now, 0.0)

    def _note_answer(self, *, has_hints: bool) -> None:
        """Plan the next check, because the server has answered or has sent notifications."""
        self._check_pause = FIRST_CHECK if has_hints else min(2 * self._check_pause, LONGEST_CHECK)
        self._check_at = time.monotonic() + self._check_pause
        self._is_asked = False

    def _warn_refused(self, error: NoPermissionError) -> None:
        if self._told:
            return
        self._told = True
        logger.warning(
            "Redis at %s refused the subscription to the channel %s: %s. Without it, %s. Allow the channel in the ACL "
            "of this user: &%s",
            self._where,
            self._channel,
            str(error).removesuffix("."),
            self._consequence,
            self._channel,
        )

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.disconnect()
            self._connection = None


def _read_all(connection: AbstractConnection) -> list[tuple[str, str]]:
    hints: list[tuple[str, str]] = []
    while connection.can_read(timeout=0):
        reply = connection.read_response(disable_decoding=True)
        if len(reply) != 3:  # the reply to a PING
            continue
        _, _, message = reply
        first, _, second = message.decode("utf-8", "replace").partition(" ")
        hints.append((first, second))
    return hints
