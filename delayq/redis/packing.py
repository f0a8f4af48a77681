"""Connections for asyncio that pack commands in C.

redis-py does that only where nothing is awaited. In Python, a command of a few hundred words takes longer to pack than
the server needs to carry it out.
"""

from __future__ import annotations

from typing import Any

from hiredis import pack_command
from redis.asyncio.connection import Connection, SSLConnection, UnixDomainSocketConnection


class _Packing:
    """Stands before a connection class."""

    def pack_command(self, *args: Any) -> list[bytes]:
        """A command as bytes. A name of two words ('SCRIPT LOAD') travels as two."""
        name = args[0].encode() if isinstance(args[0], str) else args[0]
        return [pack_command((*name.split(), *args[1:]) if b" " in name else args)]


class Plain(_Packing, Connection):
    """To a host and a port."""


class Tls(_Packing, SSLConnection):
    """To a host and a port, encrypted."""


class Unix(_Packing, UnixDomainSocketConnection):
    """To a socket of this machine."""
