"""Where the server listens, and by which names it may be called."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from delayq.core.errors import ConfigError, UnsafeSetup

PORT: Final = 8080
LOOPBACK: Final = "127.0.0.1"
_OWN_NAMES: Final = ("localhost", "127.0.0.1", "::1")
Place = tuple[int, int, int, str, Any]
"""One answer of getaddrinfo."""


@dataclass(frozen=True, slots=True)
class Binding:
    """A host and a port (0 = any that is free). `names` are further names the server answers to."""

    host: str = LOOPBACK
    port: int = PORT
    names: Sequence[str] = ()

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return all(_is_loopback(address) for address in self._addresses())

    @property
    def hosts(self) -> frozenset[str]:
        """The names a request may call the server by; empty = any, which is for others than loopback alone.

        A page of somebody else's, whose name its owner lets point at 127.0.0.1, is kept out by this.
        """
        named = {name.lower().strip("[]") for name in self.names}
        if named or self.loopback:
            named |= {*_OWN_NAMES, self.host.lower()}
        return frozenset(named)

    def guard(self, *, has_keys: bool) -> None:
        """Raises `UnsafeSetup` where anybody in reach could do everything."""
        if not has_keys and not self.loopback:
            raise UnsafeSetup(
                f"Listening on {self.host} without an API key would let everybody who reaches it do everything.",
                hint="`delayq api-key create` makes a key, DELAYQ_API_KEYS_FILE says where they are; or listen on "
                f"{LOOPBACK}.",
            )

    def open(self) -> socket.socket:
        """A socket that listens there. Raises `ConfigError`: the place is taken, or not of this machine."""
        family, kind, protocol, _, address = self._found()[0]
        listening = socket.socket(family, kind, protocol)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen()
        except OSError as error:
            listening.close()
            raise ConfigError(
                f"{self.host} port {self.port} cannot be listened on: {error.strerror}.",
                hint="Name another with --host and --port; port 0 takes one that is free.",
            ) from error
        listening.setblocking(False)
        return listening

    def url(self, listening: socket.socket) -> str:
        """How a caller on this machine names the place."""
        port = listening.getsockname()[1]
        return f"http://[{self.host}]:{port}" if ":" in self.host else f"http://{self.host}:{port}"

    def _addresses(self) -> list[str]:
        return [str(address[0]) for *_, address in self._found()]

    def _found(self) -> list[Place]:
        try:
            flags = socket.AI_PASSIVE
            return list(socket.getaddrinfo(self.host.strip("[]"), self.port, type=socket.SOCK_STREAM, flags=flags))
        except (OSError, UnicodeError) as error:
            raise ConfigError(
                f"--host {self.host} is no address of this machine.", hint="An example: --host 127.0.0.1."
            ) from error


def _is_loopback(address: str) -> bool:
    with suppress(ValueError):
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    return False
