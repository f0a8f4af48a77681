"""Which addresses a webhook may be sent to: those of the internet, unless others are allowed.

The name is resolved here and the connection goes to the address that was looked at, so a name that means something
else a moment later changes nothing.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Sequence
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from delayq.core.errors import ConfigError, InvalidInput, NotDelivered
from delayq.core.mask import mask_url
from delayq.core.shown import shown

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

_BEHIND_HOST: Final = re.compile(r"[/?#\\\s]")
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
_NEVER: Final = tuple(
    ipaddress.ip_network(one)
    for one in (
        "168.63.129.16/32",  # looks like any other, and is what a machine of Azure runs on
        "192.0.0.0/24",  # for protocols; parts of it count as global in some Pythons, and Oracle's clouds answer there
        "64:ff9b:1::/48",  # NAT64 of somebody's own
        "fec0::/10",  # what private addresses were once; no Python calls them that
        "3fff::/20",  # for examples
    )
)


class Target:
    """A URL taken apart: https, or http where it is allowed; no user, no fragment. Raises `InvalidInput`."""

    def __init__(self, url: str, *, http: bool) -> None:
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:  # its text may repeat what stands for the port
            raise _unusable(url, "Use https://host/path, or https://host:port/path.") from None
        if parts.scheme not in (("https", "http") if http else ("https",)) or not parts.hostname:
            allowed = "" if http or parts.scheme != "http" else " http goes to networks that are allowed only."
            raise _unusable(url, f"Use https://host/path.{allowed}")
        if parts.username is not None or parts.fragment or not url.isascii() or not url.isprintable() or " " in url:
            raise _unusable(url, "No user, fragment or spaces; ASCII only.")
        self.secure = parts.scheme == "https"
        self.host = parts.hostname
        self.port = port or (443 if self.secure else 80)
        self.path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


def _unusable(url: str, hint: str) -> InvalidInput:
    """Names the host. The path may hold a token."""
    masked = mask_url(url)
    scheme, mark, rest = masked.rpartition("://")
    host = _BEHIND_HOST.split(rest, maxsplit=1)[0]
    named = scheme + mark + host + ("/***" if len(host) < len(rest) else "")
    return InvalidInput(f"{shown(named)} is no URL for a webhook.", hint=hint)


def networks(allowed: Sequence[str]) -> tuple[Network, ...]:
    """Networks as text, `127.0.0.0/8`; raises `ConfigError`."""
    try:
        return tuple(ipaddress.ip_network(one) for one in allowed)
    except ValueError as error:
        raise ConfigError(f"allow has no networks: {error}.", hint="Write allow=['10.1.0.0/16'].") from error


def resolve(target: Target, allowed: Sequence[Network]) -> tuple[Address, ...]:
    """The addresses of the host, every one of which may be sent to.

    One that may not be speaks against the others: a name with an address inside and one outside is a trap, or a
    mistake. Raises `NotDelivered` when none is found, `InvalidInput` for one that may not be sent to.
    """
    try:
        found = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise NotDelivered(f"The host {target.host} of a webhook cannot be found: {error}.") from error
    addresses = tuple(
        dict.fromkeys(ipaddress.ip_address(str(one[4][0]).partition("%")[0]) for one in found)  # in the order given
    )
    for address in addresses:
        if not (is_public(address) or any(address in network for network in allowed)):
            raise InvalidInput(
                f"The webhook host {target.host} has the address {address}, which is not on the internet.",
                hint="Allow its network if you mean it: allow = ['10.1.0.0/16'].",
            )
        if is_public(address) and not target.secure:
            raise InvalidInput(f"The webhook host {target.host} is on the internet.", hint="Use https.")
    return addresses


def is_public(address: Address) -> bool:
    """Whether an address is on the internet, also the one that is wrapped in it."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour or (address.teredo or (None, None))[1]
        if inner is None and address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(inner)
    if address.is_multicast or address.is_reserved or any(address in network for network in _NEVER):
        return False
    return address.is_global
