"""The address of the embedded server for clients: the first connection finds or starts the server."""

import logging
from typing import Final

import redis.asyncio.connection as asyncio_connections
import redis.connection as blocking_connections

from delayq.redis.connection.leaf import TRY_TIMEOUT
from delayq.redis.connection.url import Address
from delayq.redis.embedded.server import EmbeddedServer

logger: Final = logging.getLogger("delayq")


class EmbeddedAddress(Address):
    """The address of an embedded server that may not run yet. Making this object starts and creates nothing.

    Before the first connection, the server of an existing data directory is found or started, which blocks the thread,
    even in an event loop. If the data directory does not exist, a connection raises BackendUnavailable. Only `create`
    creates the data directory.
    """

    def __init__(self, server: EmbeddedServer) -> None:
        # None at first, because the constructor of Address makes connections, to check the options. These connections
        # are never opened, and must not start the server.
        self._unknown: EmbeddedServer | None = None
        super().__init__(server.url)
        self._unknown = server

    def create(self) -> None:
        """Find or start the server, and create its data directory if it does not exist.

        After a successful call, further calls do nothing. Raises ConfigError, BackendUnavailable.
        """
        server = self._unknown
        if server is None:
            return
        if server.find_or_start():
            logger.info("started the embedded server, data in %s", server.data_dir)
        self._unknown = None

    def blocking_connection(self, try_timeout: float = TRY_TIMEOUT) -> blocking_connections.AbstractConnection:
        """Return a new connection; see Address. Raises ConfigError, BackendUnavailable."""
        self._find()
        return super().blocking_connection(try_timeout)

    def asyncio_connection(self, try_timeout: float = TRY_TIMEOUT) -> asyncio_connections.AbstractConnection:
        """Return a new connection; see Address. Raises ConfigError, BackendUnavailable."""
        self._find()
        return super().asyncio_connection(try_timeout)

    def _find(self) -> None:
        server = self._unknown
        if server is not None:
            server.check_data()
            self.create()
