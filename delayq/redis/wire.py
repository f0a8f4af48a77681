"""The options every connection gets, whoever makes it.

What redis-py changed between its versions 6, 7 and 8, or leaves to chance, is set here, so that delayq behaves
the same on all of them:

* timeouts: explicit. Version 8 waits 5 s by itself, older ones for ever.
* retries: none (set by the makers of clients). `resend` sends again and knows when that is safe.
* health checks: none. A PING before a command costs a round trip and proves little: the pool already looks at
  the socket before it hands a connection out, so one closed by the server is replaced unseen, and one that went
  silently dead costs one timeout and a resend. TCP keepalive finds those that nobody uses, within 45 s.
* protocol: RESP2 unless the URL says 3: one round trip less at connect and as fast; `replies` makes both alike.
* maintenance notifications: off. They cost a round trip at connect and hide closed sockets from the pool.
"""

from __future__ import annotations

import inspect
import socket
import ssl
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from redis.credentials import UsernamePasswordCredentialProvider

from delayq.core.endpoint import Endpoint, Login
from delayq.core.errors import ConfigError
from delayq.redis.bounded import BoundedParser, SkippingParser

# Linux and macOS name the idle time differently; some systems have none of these.
_KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPALIVE": 30, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
_TLS_VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
# A sentinel that does not answer is passed over; with three of them silent a try still ends within its budget.
_SENTINEL_S = 0.5


@dataclass(frozen=True, slots=True)
class Wire:
    """What differs between the roles of a connection."""

    client_name: str
    """Shown by CLIENT LIST; no spaces."""
    connect_s: float
    answer_s: float
    connections: int
    """At most so many; who wants one more waits for `answer_s`."""
    most_reply: int = 0
    """Bytes of one reply; what is larger is left unread (`ReplyTooLarge`). 0: any."""
    most_value: int = 0
    """Bytes of one value in a reply; what is larger is dropped (`Skipped`). RESP2 only. 0: any."""

    @property
    def refusing_pool(self) -> int:
        """At most so many where a pool refuses rather than waits, as those of Sentinel and Cluster do: wider."""
        return self.connections * 8


def pool_options(endpoint: Endpoint, wire: Wire, *, connection: type) -> dict[str, Any]:
    """Options for a pool of connections to the one server at `endpoint`."""
    secure = tls_options(endpoint)
    secure.pop("ssl", None)  # a pool is told by the class of its connections
    return {
        **_place(endpoint),
        "db": endpoint.db,
        "max_connections": wire.connections,
        "timeout": wire.answer_s,
        **secure,
        **common_options(endpoint, wire, connection=connection),
    }


def common_options(endpoint: Endpoint, wire: Wire, *, connection: type) -> dict[str, Any]:
    """Options for any server behind `endpoint`. `connection` is the class that will get them."""
    options: dict[str, Any] = {
        "socket_timeout": wire.answer_s,
        "socket_connect_timeout": wire.connect_s,
        "health_check_interval": 0,
        "client_name": wire.client_name,
        "decode_responses": False,
        "protocol": endpoint.protocol,
        **_login(endpoint.login),
        **_no_maintenance(connection),
    }
    if wire.most_reply:
        options["parser_class"] = partial(BoundedParser, most=wire.most_reply)
    if wire.most_value:
        options |= {"parser_class": partial(SkippingParser, most=wire.most_value), "protocol": 2}
    if not endpoint.path:
        options |= _keepalive()
    return options


def sentinel_options(endpoint: Endpoint) -> dict[str, Any]:
    """Options for the sentinels themselves, which have a login of their own."""
    return {
        "socket_timeout": _SENTINEL_S,
        "socket_connect_timeout": _SENTINEL_S,
        "protocol": 2,
        **_login(endpoint.sentinel_login),
        **tls_options(endpoint),
    }


def tls_options(endpoint: Endpoint) -> dict[str, Any]:
    """The `ssl...` options, empty without TLS. Raises `ConfigError` for a file that is not there."""
    if not endpoint.tls:
        return {}
    given: dict[str, Any] = dict(endpoint.tls_options)
    for name in ("ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile"):
        if name in given and not Path(given[name]).exists():
            raise ConfigError(f"{name} of the Redis URL {endpoint} names {given[name]!r}, which does not exist.")
    if "ssl_min_version" in given:
        given["ssl_min_version"] = _TLS_VERSIONS[given["ssl_min_version"]]
    # Without a certificate there is no name to check; the ssl module refuses the pair.
    given.setdefault("ssl_check_hostname", given.get("ssl_cert_reqs") != "none")
    return {"ssl": True, **given}


def _place(endpoint: Endpoint) -> dict[str, Any]:
    if endpoint.path:
        return {"path": endpoint.path}
    host, port = endpoint.hosts[0]
    return {"host": host, "port": port}


def _login(login: Login) -> dict[str, Any]:
    # Not as plain options: redis-py 7 shows those of a pool in its repr.
    if not login.password:
        return {}
    return {"credential_provider": UsernamePasswordCredentialProvider(login.username or None, login.password)}


def _keepalive() -> dict[str, Any]:
    known = {getattr(socket, name): value for name, value in _KEEPALIVE.items() if hasattr(socket, name)}
    return {"socket_keepalive": True, "socket_keepalive_options": known}


def _no_maintenance(connection: type) -> dict[str, Any]:
    if "maint_notifications_config" not in inspect.signature(connection).parameters:
        return {}  # redis-py 6, and asyncio in 7
    from redis.maint_notifications import MaintNotificationsConfig

    return {"maint_notifications_config": MaintNotificationsConfig(enabled=False)}
