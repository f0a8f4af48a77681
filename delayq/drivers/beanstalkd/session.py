"""One connection to beanstalkd. It is dropped after every answer that leaves it unclear what comes next.

The protocol numbers nothing: an answer belongs to the command before it, so one answer too many or too few gives every
later command the answer of another. What may be read on is listed in `_IN_STEP`; after all else, a signal in the middle
of a call included, the connection is closed and the next call makes a new one. What was reserved on it is available to
others at once: reservations belong to their connection, and `serial` says which one that was.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Final, TypeVar

import greenstalk

from delayq.core.errors import BackendError, BackendFull, BackendUnavailable, InvalidPayload, OutcomeUnknown
from delayq.drivers.beanstalkd.tubes import Place

T = TypeVar("T")
Client = greenstalk.Client[bytes]
Job = greenstalk.Job[bytes]

ANSWER_S: Final = 5.0
CONNECT_S: Final = 3.0
_IN_STEP: Final = (
    greenstalk.BuriedError,
    greenstalk.DeadlineSoonError,
    greenstalk.NotFoundError,
    greenstalk.NotIgnoredError,
    greenstalk.TimedOutError,
)


class Session:
    """Belongs to one thread at a time. Connects when first asked."""

    def __init__(self, place: Place, answer_s: float = ANSWER_S) -> None:
        self.serial = 0
        self.max_bytes = 0
        self._place = place
        self._answer_s = answer_s
        self._socket: socket.socket | None = None
        self._client: Client | None = None
        self._using = "default"
        self._watching: frozenset[str] = frozenset({"default"})

    @property
    def connected(self) -> bool:
        """Whether there is a connection, as far as is known."""
        return self._client is not None

    def ask(self, do: Callable[[Client], T], *, wait_s: float = 0.0, writes: bool = False) -> T:
        """Do one exchange. `writes`: doing it twice would show, so a lost answer is an `OutcomeUnknown`.

        Raises `BackendUnavailable` where nothing was done, greenstalk's own errors for answers that are no trouble.
        """
        client, connection = self._open()
        connection.settimeout(self._answer_s + wait_s)
        try:
            return do(client)
        except _IN_STEP:
            raise
        except greenstalk.Error as error:
            self.drop()
            raise self._said(error) from error
        except (OSError, AssertionError, ValueError, IndexError) as error:  # what greenstalk raises for half an answer
            self.drop()
            raise self._lost(error, writes=writes) from error
        except BaseException:
            self.drop()
            raise

    def use(self, tube: str) -> None:
        """Put into that tube from now on."""
        self._open()
        if self._using != tube:
            self.ask(lambda client: client.use(tube))
            self._using = tube

    def watch(self, tubes: frozenset[str]) -> None:
        """Reserve from these tubes and no others. The new ones first: a connection watches one at least."""
        self._open()
        for tube in sorted(tubes - self._watching):
            self.ask(lambda client, tube=tube: client.watch(tube))  # type: ignore[misc]
            self._watching |= {tube}
        for tube in sorted(self._watching - tubes):
            self.ask(lambda client, tube=tube: client.ignore(tube))  # type: ignore[misc]
            self._watching -= {tube}

    def limit(self) -> int:
        """How many bytes a job may have; the server says so once for each connection."""
        self._open()
        if not self.max_bytes:
            self.max_bytes = int(self.ask(lambda client: client.stats())["max-job-size"])
        return self.max_bytes

    def drop(self) -> None:
        """Close the connection; the next call makes another."""
        client, self._client, self._socket = self._client, None, None
        if client is not None:
            client.close()

    def _open(self) -> tuple[Client, socket.socket]:
        if self._client is not None and self._socket is not None:
            if _silent(self._socket):
                return self._client, self._socket
            self.drop()  # the server has gone since, so nothing is sent that would be lost
        try:
            connection = self._dial()
            client: Client = greenstalk.Client(connection, encoding=None)
        except OSError as error:
            raise BackendUnavailable(
                f"No beanstalkd answers at {self._place}: {error}.", hint="Start it, or mend the connection's address."
            ) from error
        self._client, self._socket = client, connection
        self._using, self._watching = "default", frozenset({"default"})
        self.max_bytes = 0
        self.serial += 1
        return client, connection

    def _dial(self) -> socket.socket:
        place, timeout = self._place, min(CONNECT_S, self._answer_s)
        if not place.path:
            connection = socket.create_connection((place.host, place.port), timeout=timeout)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            return connection
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(timeout)
            connection.connect(place.path)
        except BaseException:
            connection.close()
            raise
        return connection

    def _lost(self, error: Exception, *, writes: bool) -> BackendError:
        told = f"The connection to beanstalkd at {self._place} broke before the answer came"
        why = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        if writes:
            return OutcomeUnknown(
                f"{told} ({why}), so it may have worked.", hint="Look at the queue before sending it again."
            )
        return BackendUnavailable(f"{told} ({why}).", hint="Try again when it is back.")

    def _said(self, error: greenstalk.Error) -> BackendError | InvalidPayload:
        match error:
            case greenstalk.DrainingError():
                return BackendFull(
                    f"beanstalkd at {self._place} takes no new jobs: it is in drain mode.",
                    hint="Send it to another one, or start this one anew.",
                )
            case greenstalk.OutOfMemoryError():
                return BackendFull(f"beanstalkd at {self._place} has no memory left; nothing was taken.")
            case greenstalk.JobTooBigError():
                return InvalidPayload(
                    f"The job is larger than beanstalkd at {self._place} takes.", hint="Raise its option -z."
                )
            case _:
                words = getattr(error, "status", b"").decode("ascii", "replace") or type(error).__name__
                return BackendError(f"beanstalkd at {self._place} answered {words}.")


def _silent(connection: socket.socket) -> bool:
    """Whether nothing lies there to be read: neither the end of the connection nor an answer nobody waits for."""
    connection.setblocking(False)
    try:
        connection.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
