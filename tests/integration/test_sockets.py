"""Connections whose waits the kernel ends: a hanging server is noticed in time, and said to be one."""

from __future__ import annotations

import socket
import struct
import time
from contextlib import closing
from typing import Any

import pytest

from delayq.core.errors import BackendUnavailable
from delayq.redis.connect import Connector, Waits
from delayq.redis.sockets import SUPPORTED
from tests.support.machine import fair_clock
from tests.support.servers import OwnServer

HANGING = Waits(connect_ms=300, answer_ms=300, budget_ms=700)


@pytest.mark.skipif(not SUPPORTED, reason="the kernel's timeouts are used on Linux")
def test_no_timeout_of_pythons_is_left_on_a_socket(redis_url: str) -> None:
    with closing(Connector(redis_url)) as connector:
        pool = connector.commands().connection_pool
        connection = pool.get_connection()
        sock: Any = connection._sock
        assert sock.gettimeout() is None
        assert struct.unpack("ll", sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, 16)) == (2, 0)
        pool.release(connection)


@pytest.mark.timed
def test_a_hanging_server_costs_no_more_than_its_time(own_server: OwnServer) -> None:
    server = own_server()
    with closing(Connector(server.url, waits=HANGING)) as connector:
        assert connector.call(lambda client: client.ping(), safe=True)
        server.stop()
        try:
            begun, fairly_begun = time.monotonic(), fair_clock()
            with pytest.raises(BackendUnavailable, match="no answer in time"):
                connector.call(lambda client: client.ping(), safe=True, reads=True)
            took, fairly = time.monotonic() - begun, fair_clock() - fairly_begun
        finally:
            server.cont()
        assert took > 0.25
        assert fairly < 1.5
        assert connector.call(lambda client: client.ping(), safe=True), "and it goes on when the server does"
